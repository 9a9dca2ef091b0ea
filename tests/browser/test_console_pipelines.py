"""The console's page about pipelines, fed by the reports themselves: their fields are those the page shows."""

from playwright.sync_api import Browser, Locator, expect

from topics.spark.jobs.reports import Account, Report, TopicReports
from topics.spark.options import Server
from topics.testing.running_server import server

HOLDS, DOES_NOT = Account("orders", 5, 1, 1, 7), Account("bills", 5, 1, 0, 7)


def test_the_page_shows_what_pipelines_report(browser: Browser) -> None:
    page = browser.new_page()

    def row(name: str) -> Locator:
        return page.get_by_role("table", name="Pipelines").get_by_role("row").filter(has_text=name)

    lost: list[str] = []
    with server() as running:
        reports = TopicReports(Server(running.url, None), lost.append)
        try:
            page.goto(f"{running.url}/console#/pipelines")
            expect(page.get_by_text("No pipeline has reported yet")).to_be_visible(timeout=60_000)
            reports.begin()
            failed = Report(pipeline="keep", job="archive", state="failed", run=1, wait_ms=1000, error="no room")
            reports.tell(failed)
            expect(row("keep")).to_contain_text("no room", timeout=60_000)
            reports.tell(Report(pipeline="keep", job="archive", state="done", run=2, rows=40, rows_per_s=1234, lag=77))
            reports.tell(
                Report(pipeline="nightly", job="audit", state="done", run=1, rows=10, topics=(HOLDS, DOES_NOT))
            )
            expect(row("nightly")).to_contain_text("done", timeout=60_000)
            for shown in ("done", "77", "1,234", "none"):
                expect(row("keep")).to_contain_text(shown)
            audits = page.get_by_role("table", name="Audits").get_by_role("row")
            expect(audits.filter(has_text="orders")).to_contain_text("holds")
            expect(audits.filter(has_text="bills")).to_contain_text("does not add up")
        finally:
            reports.close()
            page.close()
    assert lost == []
