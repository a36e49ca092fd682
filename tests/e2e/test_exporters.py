"""Exporters against the programs that people run."""

from __future__ import annotations

import json
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

import pytest

from tests.e2e.harness import answers, free_port, need, server
from tests.measurements import LATENCY, TARGET, source
from weft.export.metrics import prometheus


def ask(port: int, what: str, **query: str) -> Any:
    """What Prometheus says, as soon as it has something to say."""
    url = f"http://127.0.0.1:{port}/api/v1/{what}?{urlencode(query)}"
    deadline = time.monotonic() + 60
    while True:
        # It listens before it can answer: until then it says 503.
        with suppress(HTTPError), urllib.request.urlopen(url, timeout=20) as answer:
            data = json.load(answer)["data"]
            if found := data["result"] if what == "query" else data:
                return found
        assert time.monotonic() < deadline, "prometheus knows nothing"
        time.sleep(0.2)


def test_prometheus_answers_with_our_numbers(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    need("prometheus")
    port = free_port()
    config = tmp_path / "prometheus.yml"
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with prometheus.serve(":0", source()) as page:
        address = page.url.removeprefix("http://").removesuffix("/metrics")
        config.write_text(
            "global: {scrape_interval: 250ms, scrape_timeout: 250ms}\n"
            "scrape_configs:\n"
            "  - job_name: weft\n"
            f"    static_configs: [{{targets: ['{address}']}}]\n"
        )
        with server(command, lambda: answers(port)):
            calls = ask(port, "query", query='weft_calls_total{focus=~".*/processCommand"}')
            median = ask(
                port, "query", query="histogram_quantile(0.5, weft_latency_seconds_bucket)"
            )
            kinds = ask(port, "metadata", metric="weft_latency_seconds")
    assert calls[0]["metric"]["program"] == TARGET.program
    assert calls[0]["value"][1] == "120123"
    # What is exported has bounds of its own, so it is right to the width of a bucket.
    (bucket,) = [one for one in LATENCY.buckets if one.low <= LATENCY.quantile(0.5) <= one.high]
    assert bucket.low / 1e9 <= float(median[0]["value"][1]) <= (bucket.high + 1) / 1e9
    (kind,) = kinds["weft_latency_seconds"]
    assert (kind["type"], kind["help"]) == ("histogram", "How long calls take")
