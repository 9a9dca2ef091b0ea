"""What is in `deploy/`, and how a server behaves for what runs it: a service manager, a log collector, a monitor."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from acceptance.server import Server
from conformance.client import success

ROOT = Path(__file__).parents[2]
METRIC = re.compile(r"\btopics_[a-z0-9_]+")


@pytest.fixture
def metrics(tmp_path: Path) -> set[str]:
    """The names in a scrape of a server that has something of everything."""
    server = Server(tmp_path)
    try:
        api = server.api
        success(api.put("/v0/topics/jobs", {"type": "queue", "durable": True}))
        success(api.post("/v0/topics/jobs", {"records": [{"data": 1}]}))
        success(api.put("/v0/topics/orders", {}))
        success(api.put("/v0/routers/copy", {"source": "orders", "dest": "copies"}))
        success(api.post("/v0/topics/orders", {"records": [{"data": 1}]}))
        success(api.put("/v0/topics/orders/cursors/reader", {"seq": 0}))
        text = api.get("/v0/metrics").body.decode()
    finally:
        server.stop()
    return {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}


@pytest.mark.parametrize("name", ["deploy/grafana-dashboard.json", "deploy/alerts.yml"])
def test_every_metric_that_is_watched_is_in_a_real_scrape(name: str, metrics: set[str]) -> None:
    watched = set(METRIC.findall((ROOT / name).read_text()))
    assert len(watched) > 10
    assert watched - metrics == set()


def test_every_alert_says_what_to_do() -> None:
    alerts = re.findall(r"- alert: (\w+)", (ROOT / "deploy/alerts.yml").read_text())
    guide = (ROOT / "docs/operating.md").read_text()
    assert alerts
    assert [alert for alert in alerts if f"`{alert}`" not in guide] == []


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(target["expr"] for panel in panels for target in panel.get("targets", []))


def test_the_service_manager_hears_when_the_server_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(15)
        server = Server(tmp_path, NOTIFY_SOCKET=str(address))
        assert manager.recv(100) == b"READY=1"
        assert server.api.get("/v0/ready").status == 200
        server.stop()
        assert manager.recv(100) == b"STOPPING=1"


def test_a_service_manager_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    server = Server(tmp_path, NOTIFY_SOCKET=str(tmp_path / "nobody"))
    server.stop()
    assert "could not be told READY=1" in server.log()


def test_the_log_is_json_when_asked_for(tmp_path: Path) -> None:
    server = Server(tmp_path, TOPICS_LOG_FORMAT="json", TOPICS_LOG="debug")
    server.api.get("/v0/topics/nothing")
    server.stop()
    lines = [json.loads(line) for line in server.log().splitlines()]
    assert any(re.search(r"GET /v0/topics/nothing 404", line["message"]) for line in lines)
    assert all(line.keys() >= {"ts", "level", "logger", "message"} for line in lines)


def test_the_unit_is_one_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "topics.service"
    unit.write_text((ROOT / "deploy/topics.service").read_text().replace("/opt/topics/bin/topics", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_dockerfile_has_nothing_a_linter_minds() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_steps_of_the_dockerfile_give_a_healthy_server(tmp_path: Path) -> None:
    """The image itself needs a registry: here, only what it copies is built and started, in a clean directory."""
    steps = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    source, installed = tmp_path / "build", tmp_path / "installed"
    source.mkdir()
    copied = [words.split() for words in re.findall(r"^COPY ((?!--from).+)$", steps, re.MULTILINE)]
    for *names, _ in copied:
        for name in names:
            of, to = ROOT / name, source / name
            shutil.copytree(of, to, ignore=shutil.ignore_patterns("*.egg-info")) if of.is_dir() else shutil.copy(of, to)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(installed)
    settings = dict(re.findall(r"\b(TOPICS_\w+)=(\S+)", steps[steps.index("ENV") :]))
    assert settings["TOPICS_HOST"] == "0.0.0.0"
    settings |= {"TOPICS_DATA_DIR": str(tmp_path / "data"), "TOPICS_API_KEYS": "a-key", "PYTHONPATH": str(installed)}
    where = [sys.executable, "-c", "import topics; print(topics.__file__)"]
    found = subprocess.run(where, env=os.environ | settings, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(installed))
    server = Server(tmp_path, **settings)
    try:
        port = (tmp_path / "address").read_text().strip().rpartition(":")[2]
        (check,) = re.findall(r"HEALTHCHECK .*?CMD (\[.+\])", steps)
        command: list[str] = json.loads(check)
        command = [word.replace(":4000/", f":{port}/") for word in command]
        assert subprocess.run([sys.executable, *command[1:]], check=False, timeout=30).returncode == 0
    finally:
        server.stop()


def test_wheel_and_source_distribution_are_complete(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode != 0:
        pytest.skip("not a checkout: what belongs into a distribution is asked of git")
    names = [name for name in tracked.stdout.splitlines() if (ROOT / name).exists()]
    source = tmp_path / "source"
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(source)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        packaged = {name for name in names if name.startswith("src/topics/") and "/.git" not in name}
        assert {name.removeprefix("src/") for name in packaged} - set(archive.namelist()) == set()
    with tarfile.open(sdist) as files:
        held = {name.partition("/")[2] for name in files.getnames()}
    hosting = (".ci/", ".github/", ".git", ".pre-commit")
    assert {name for name in names if not name.startswith(hosting)} - held == set()
    check = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
