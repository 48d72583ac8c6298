"""Log lines have one form and no secrets, whoever writes them."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest
import structlog

from tidegate.cli.running import configure_log
from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry import configure_logs, get_logger
from tidegate.core.telemetry.logs import LogLevel, LogSettings


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Whatever a test configures ends with it.

    Not `structlog.reset_defaults()`: its defaults log at debug level and render each traceback with the values of all
    variables, which took seconds in every later test of this process that logs an exception.
    """
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    ours = structlog.get_config()
    yield
    structlog.configure(**ours)
    root.setLevel(level)
    root.handlers[:] = handlers


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    return [cast("dict[str, Any]", json.loads(line)) for line in stream.getvalue().splitlines()]


def test_a_json_line_is_one_object_with_event_level_time_and_facts():
    configure_logs("json", stream=(stream := io.StringIO()))

    get_logger("tidegate.primitives.stream").info("stream.taken_over", stream="jobs", messages=12, idle_ms=15_004)

    [line] = written(stream)
    assert line.pop("at").endswith("Z")
    assert line == {
        "event": "stream.taken_over",
        "level": "info",
        "module": "tidegate.primitives.stream",
        "stream": "jobs",
        "messages": 12,
        "idle_ms": 15_004,
    }


def test_excluded_events_are_omitted():
    configure_logs("json", stream=(stream := io.StringIO()), without=["worker.lease_ended"])
    log = get_logger("tidegate.runtime")

    log.warning("worker.lease_ended", owner="a", messages=0)
    log.warning("worker.unregistered", owner="b", messages=0)

    assert [line["event"] for line in written(stream)] == ["worker.unregistered"]


@pytest.mark.parametrize(("level", "told"), [("info", []), ("warning", ["worker.lease_ended"])])
def test_a_running_command_omits_process_endings_unless_configured(level: LogLevel, told: list[str]):
    configure_log(LogSettings(format="json", level=level), stream=(stream := io.StringIO()))

    get_logger("tidegate.runtime").warning("worker.lease_ended", owner="a", messages=0)

    assert [line["event"] for line in written(stream)] == told


def test_a_text_line_has_event_and_facts():
    configure_logs("console", stream=(stream := io.StringIO()))

    get_logger("tidegate.primitives.stream").warning("stream.dead_lettered", stream="jobs")

    assert "stream.dead_lettered" in stream.getvalue()
    assert "stream=jobs" in stream.getvalue()


def test_only_events_of_the_configured_level_are_written():
    configure_logs("json", "warning", stream=(stream := io.StringIO()))
    log = get_logger("tidegate")

    log.info("service.started")
    log.warning("service.failed")

    assert [line["event"] for line in written(stream)] == ["service.failed"]


def test_a_logger_created_before_configuration_uses_the_new_configuration():
    log = get_logger("tidegate")
    configure_logs("json", stream=(first := io.StringIO()))
    log.info("service.started")
    configure_logs("json", stream=(second := io.StringIO()))
    log.info("service.stopped")

    assert [line["event"] for line in written(first)] == ["service.started"]
    assert [line["event"] for line in written(second)] == ["service.stopped"]


@pytest.mark.parametrize("form", ["console", "json"])
def test_secrets_in_fields_exceptions_and_library_logs_are_redacted(form: Any):
    configure_logs(form, stream=(stream := io.StringIO()))
    log = get_logger("tidegate")

    log.info("valkey.connected", url="redis://:hunter2@h", headers={"Authorization": "hunter2"}, token="hunter2")
    try:
        try:
            raise ValueError("redis://:hunter2@h")
        except ValueError as cause:
            raise RuntimeError("password='hunter2'") from cause
    except RuntimeError:
        log.exception("service.failed", service="relay")
        logging.getLogger("library").exception("lost redis://me:hunter2@h")

    assert "hunter2" not in stream.getvalue()
    assert "RuntimeError" in stream.getvalue()


def test_libraries_are_logged_once_and_from_warning_level():
    configure_logs("json", stream=io.StringIO())
    configure_logs("json", stream=(stream := io.StringIO()))

    logging.getLogger("library").info("chatter")
    logging.getLogger("library").warning("trouble at %s", "redis://:hunter2@h")

    [line] = written(stream)
    assert line["event"] == "trouble at redis://:***@h"
    assert line["module"] == "library"


def test_a_fact_that_json_cannot_encode_is_written_as_text():
    configure_logs("json", stream=(stream := io.StringIO()))

    get_logger("tidegate").info("service.started", what={1, 2}, half=float("nan"), odd="\ud800", raw=b"\xff")

    [line] = written(stream)
    assert line["half"] == "nan"
    assert line["raw"] == "\\xff"


@pytest.mark.parametrize(("form", "level"), [("xml", "info"), ("json", "loud")])
def test_an_unknown_format_or_level_is_refused(form: Any, level: Any):
    with pytest.raises(InvalidArgument):
        configure_logs(form, level)
