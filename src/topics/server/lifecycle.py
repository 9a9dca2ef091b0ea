"""The life of a server process: start, serve until asked to stop, let what is in flight finish."""

import asyncio
import gc
import logging
import signal
import socket
import sys

import uvloop

from topics import limits
from topics.api.readiness import Phase
from topics.clock import SystemClock
from topics.errors import ConfigurationError, StorageFailed, TopicsError
from topics.server.allocator import share_pools
from topics.server.assembly import Server, assemble
from topics.server.descriptors import claim_descriptors
from topics.server.key_file import read_key_file
from topics.server.log_lines import write_log
from topics.server.port_file import write_port_file
from topics.server.service_manager import tell
from topics.server.settings import Settings, require_host
from topics.storage.errors import DirectoryInUse
from topics.storage.fs import RealDisk
from topics.version import VERSION

log = logging.getLogger("topics.server")


def serve(settings: Settings) -> Server:
    """Runs until SIGINT or SIGTERM. Raises `StorageFailed` at its end if the disk had failed. What it returns has
    ended, and holds everything that is in memory."""
    write_log(settings.log_level, settings.log_format)
    _put_off_full_collections()
    sys.setswitchinterval(limits.THREAD_SWITCH_S)
    share_pools()
    return uvloop.run(_serve(settings))


def _put_off_full_collections() -> None:
    """Keeps latency steady however many records are held; `limits` says what was measured."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, limits.MIDDLE_COLLECTIONS_PER_FULL)


async def _serve(settings: Settings) -> Server:
    loop = asyncio.get_running_loop()
    descriptors = claim_descriptors()
    disk = RealDisk(limits.DESCRIPTORS_SPARE)
    server = assemble(
        settings, SystemClock(), disk, loop.call_soon_threadsafe, loop.call_soon, loop.call_later, descriptors
    )
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if settings.keys_file:  # without it, SIGHUP ends the process, as when its terminal goes
        loop.add_signal_handler(signal.SIGHUP, _read_keys_again, server)
    _warn(settings)
    listener = await _bind(server, loop, descriptors.backlog)
    try:
        try:
            server.store.acquire()
        except DirectoryInUse:
            # A backup that looks whether anybody is here holds it for an instant.
            await asyncio.sleep(limits.LOCK_RETRY_S)
            server.store.acquire()
        recovery = asyncio.create_task(_recover(server))
        try:
            # A quick recovery is over before anybody can ask; during a long one the probes tell how far it is.
            await asyncio.wait({recovery}, timeout=limits.LISTEN_DELAY_S)
            if recovery.done():
                recovery.result()  # if the directory is refused at once, nobody ever gets to connect
            await _listen(server, listener)
            server.connections.start(loop)
            await recovery
            tell("READY=1")
            await _run(server, stop)
        finally:
            await asyncio.wait({recovery})
            listener.close()
            await server.store.close()
    finally:
        listener.close()
    log.info("stopped")
    if isinstance(trouble := server.store.trouble(), StorageFailed):
        raise trouble
    return server


async def _run(server: Server, stop: asyncio.Event) -> None:
    """Serves until asked to stop, then lets what is in flight finish."""
    work = (
        _expire_records(server),
        _note_cuts(server),
        _count_refusals(server),
        server.store.watch_room(),
        server.store.checkpointer.run(),
        server.pressure.run(),
        server.vital_signs.run(),
    )
    tasks = [asyncio.create_task(each) for each in work]
    await _first_of(stop, tasks)
    tell("STOPPING=1")
    log.info("stopping: requests in flight may finish")
    server.readiness.phase = Phase.STOPPING
    server.long_polls.release()
    server.desk.release()
    server.connections.drain()
    aborted = await server.connections.drained(limits.SHUTDOWN_GRACE_S)
    if aborted:
        log.warning("%d connections did not finish within %g s and were closed", aborted, limits.SHUTDOWN_GRACE_S)
    server.forwarder.stop()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _recover(server: Server) -> None:
    def progress(share: float) -> None:
        server.readiness.replay_progress = share

    gc.disable()  # all that comes back stays: looking for garbage in it is a twentieth of a recovery
    try:
        await server.store.recover(progress)
    finally:
        gc.freeze()  # the first collection would look through all of it at once
        gc.enable()
    server.forwarder.start()
    server.readiness.phase = Phase.READY


async def _first_of(stop: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
    """Returns when asked to stop. A background task never ends by itself: if one does, its error ends the server."""
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    for task in done & set(tasks):
        task.result()


async def _bind(server: Server, loop: asyncio.AbstractEventLoop, backlog: int) -> asyncio.Server:
    """Takes the address before anything else: without it, no data directory is made or touched."""
    settings = server.settings
    try:
        return await loop.create_server(
            server.protocol, settings.host, settings.port, backlog=backlog, start_serving=False
        )
    except socket.gaierror:
        require_host(settings.host)
        raise
    except OSError as error:
        raise _not_to_be_had(settings, error) from None


def _not_to_be_had(settings: Settings, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. "
        "Is another server running there? Choose another TOPICS_HOST or TOPICS_PORT (0 picks a free port)"
    )


async def _listen(server: Server, listener: asyncio.Server) -> None:
    settings = server.settings
    try:
        await listener.start_serving()
    except OSError as error:
        raise _not_to_be_had(settings, error) from None
    host, port = listener.sockets[0].getsockname()[:2]
    if settings.port_file:
        write_port_file(settings.port_file, host, port)
    log.info("topics %s listens on http://%s:%d", VERSION, f"[{host}]" if ":" in host else host, port)


def _warn(settings: Settings) -> None:
    for warning in settings.warnings:
        log.warning("%s", warning)
    if not settings.keys:
        log.warning(
            "no TOPICS_API_KEYS: authentication is OFF, anybody who can reach %s may do anything",
            settings.host,
        )
        if "*" in settings.cors_origins:
            log.warning("TOPICS_CORS_ORIGINS=* without TOPICS_API_KEYS: every web page may do everything here")


def _read_keys_again(server: Server) -> None:
    """What is open for keys that are gone ends. A file that cannot be used changes nothing."""
    keys = server.settings.keys
    try:
        of_file, warnings = read_key_file(server.settings.keys_file)
        gone = keys.replace(of_file)
    except ConfigurationError as error:
        log.error("SIGHUP: the keys stay as they were, because %s", error.message)
        return
    for warning in warnings:
        log.warning("%s", warning)
    ended = server.connections.revoke(gone)
    log.info(
        "SIGHUP: keys read again: %d in all, %d removed or changed; connections ended: %d", len(keys), len(gone), ended
    )


async def _count_refusals(server: Server) -> None:
    """A line a minute if requests were refused. Each of them has its own only at `debug`: a client that tries for ever
    would fill the disk with them."""
    while True:
        await asyncio.sleep(limits.REFUSALS_INTERVAL_S)
        refused = server.application.take_refusals()
        if refused:
            by_status = ", ".join(f"{count} with {status}" for status, count in sorted(refused.items()))
            log.info("refused requests in the last %g s: %s", limits.REFUSALS_INTERVAL_S, by_status)


async def _expire_records(server: Server) -> None:
    """Expires records in topics that nobody touches, and frees their memory."""
    told = ""
    while True:
        await asyncio.sleep(limits.EXPIRY_INTERVAL_S)
        try:
            # Slice by slice, each topic once: one whose segment is damaged is due again at once.
            for _ in range(len(server.engine.topics) // limits.EXPIRY_SLICE_TOPICS + 1):
                if not server.engine.expire_due():
                    break
                await asyncio.sleep(0)
            told = ""
        except TopicsError as error:
            # The records are gone for readers all the same; what they took is given back when it works again.
            if error.message != told:
                log.error(
                    "expired records could not be removed from disk, trying again every second: %s", error.message
                )
                told = error.message


async def _note_cuts(server: Server) -> None:
    """Says how far all shards of the log are at one instant: a backup copies up to there."""
    while True:
        server.store.note_cut()
        await asyncio.sleep(limits.WAL_CUT_INTERVAL_S)
