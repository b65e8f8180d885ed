"""What the SDK costs the app it is embedded in, beside sentry-sdk, posthog and OpenTelemetry, measured in one run.

    python benchmarks/sdk.py                  # all of it, some minutes
    python benchmarks/sdk.py --quick          # a smoke run
    python benchmarks/sdk.py --only deniable posthog
    python benchmarks/sdk.py --markdown --json figures.json

All live in a private environment that is made on first use, this tree as a wheel among them. Every figure is of a fresh
process, and the libraries take turns within each round: a slow minute of the machine hits them alike, so trust the ratios more
than the figures.

import        wall time of a process that imports the library, less that of a bare interpreter; the best of all rounds
ready         the same, for the import and everything until an answer can be recorded: ours imports its client only then
first         the first call that records one of 128 values. Ours opens the device's state and writes to it, durably
p50 - p99.9   of such a call in a loop, after 2,000 of them to warm up; the median round. Ours randomises in it, and pays for it:
              of a period of more reports than the loop makes it takes many at a time, and that is the p99.9. Nobody sends
              meanwhile: theirs have a transport that does nothing, ours a batch that is not full
repeat        the p50 of a call of ours that is refused, as the period has its report, which is all that most calls of an app come
              to; the median round. The others refuse nothing. At 10 microseconds or more the benchmark fails
absurd        numbers of millions of digits. At a p50 of a millisecond or more the benchmark fails
rest          resident memory over that of a bare interpreter when a library is ready to record; the median round
idle          the same once ten answers were sent to a server, which brings HTTP and TLS
threads       those of the library then
down, hung    seconds from the end of the program to that of its process, with ten answers queued, when the server refuses
              connections, and when it takes them and never answers; the worst round

What they are asked for is what they are made for: a message, an event, a span, and a counter with the value as an attribute. None
of it is private, and only ours may be counted on afterwards: the others keep nothing when a server is down.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from rivals import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
REQUIREMENTS = Path(__file__).with_name("sdk-requirements.txt")
VALUES = 128
WARM_UP = 2000
PATIENCE = 120  # seconds that a process may take
NOISE = 0.5  # of whatever unit: of less than that there are no multiples
REPEAT = 10.0  # microseconds that a refused call stays below
ABSURD = 1000.0  # microseconds that a call with an absurd answer stays below


class Library(NamedTuple):
    """How an app uses a library: programs, in which `url` is the server's address and `values` are the answers."""

    load: str
    start: str  # for a server
    quiet: str  # for no server: nothing is to be sent
    record: str  # the body of a function of the answer's number, i
    flush: str
    repeat: str = ""  # likewise, of one that is refused for all but the first number, if anything is


REGISTRY = """
format = 1
app = "shop"

[metrics."ui.choice"]
type = "categorical"
values = [{values}]
epsilon = 1.0
mechanism = "{mechanism}"
per_period = 1_000_000
description = "Which of many"
owner = "bench@shop.example"

[metrics."ui.number"]
type = "number"
range = [0, 1000]
unit = "ms"
estimate = "distribution"
epsilon = 1.0
per_period = 1_000_000
description = "How many"
owner = "bench@shop.example"

[metrics."ui.once"]
type = "categorical"
values = [{values}]
epsilon = 1.0
mechanism = "{mechanism}"
description = "Which of many, once a day"
owner = "bench@shop.example"
"""


def ours(mechanism: str, metric: str = "ui.choice", value: str = "values[i]") -> Library:
    """Set up our side, with no budget that would end before the loop."""
    registry = REGISTRY.format(values=", ".join(f'"v{i}"' for i in range(VALUES)), mechanism=mechanism)
    start = (
        f"import pathlib\npathlib.Path('metrics.toml').write_text({registry!r})\n"
        "caps = deniable.Caps(budget=deniable.Budget(per_month=None, lifetime=None))\n"
        "def begin(settings):\n"
        "    deniable.init(url.replace('//', '//key@') + '/shop', registry='metrics.toml', consent=True, caps=caps,\n"
        "                  settings=settings, state='state', strict=True)\n"
    )
    return Library(
        load="import deniable",
        start=start + "begin(None)",
        quiet=start + "begin(deniable.SenderSettings(flush_at=10_000_000, flush_interval=36_000, queue_size=10_000_000))",
        record=f"assert deniable.record('{metric}', {value})",
        flush="assert deniable.flush(10), deniable.stats()",
        repeat="assert not deniable.record('ui.once', values[i]) or not i",
    )


LIBRARIES = {
    "deniable": ours("subset"),
    "deniable oue": ours("oue"),
    "deniable grr": ours("grr"),
    "deniable number": ours("grr", "ui.number", "i + 0.37"),
    "deniable absurd": ours("grr", "ui.number", "absurd[i % len(absurd)]")._replace(
        load="""
            import deniable
            from decimal import Decimal
            from fractions import Fraction
            huge = 1 << 3_000_000
            absurd = [Decimal("1E+10000000"), Decimal("1E-10000000"), huge, -huge, Fraction(1, huge + 1), 1e308]
            """,
        repeat="",
    ),
    "sentry-sdk": Library(
        load="import sentry_sdk",
        start="sentry_sdk.init(url.replace('//', '//key@') + '/1')",
        quiet="""
            from sentry_sdk.transport import Transport
            class Null(Transport):
                def capture_envelope(self, envelope): pass
            sentry_sdk.init(url.replace('//', '//key@') + '/1', transport=Null)
            """,
        record="sentry_sdk.capture_message(values[i])",
        flush="sentry_sdk.flush(10)",
    ),
    "posthog": Library(
        load="import posthog",
        start="client = posthog.Posthog('phc_key', host=url)",
        quiet="client = posthog.Posthog('phc_key', host=url, thread=0, max_queue_size=10_000_000)",
        record="client.capture('ui.choice', distinct_id='somebody', properties={'value': values[i]})",
        flush="client.flush()",
    ),
    "otel span": Library(
        load="""
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            """,
        start="""
            provider = TracerProvider()
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url + '/v1/traces')))
            tracer = provider.get_tracer('shop')
            """,
        quiet="""
            from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
            class Null(SpanExporter):
                def export(self, spans): return SpanExportResult.SUCCESS
            provider = TracerProvider()
            provider.add_span_processor(BatchSpanProcessor(Null()))
            tracer = provider.get_tracer('shop')
            """,
        record="tracer.start_span('ui.choice', attributes={'value': values[i]}).end()",
        flush="provider.force_flush()",
    ),
    "otel counter": Library(
        load="""
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            """,
        start="""
            provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=url + '/v1/metrics'))])
            counter = provider.get_meter('shop').create_counter('ui.choice')
            """,
        quiet="""
            from opentelemetry.sdk.metrics.export import InMemoryMetricReader
            provider = MeterProvider([InMemoryMetricReader()])
            counter = provider.get_meter('shop').create_counter('ui.choice')
            """,
        record="counter.add(1, {'value': values[i]})",
        flush="provider.force_flush()",
    ),
}

LOOP = f"""
    import gc, json, time
    now, count = time.perf_counter_ns, {{count}}
    begin = now()
    record(0)
    first = now() - begin
    for i in range({WARM_UP}):
        record(i % {VALUES})
    gc.collect()
    times = [0] * count
    for i in range(count):
        value = i % {VALUES}
        begin = now()
        record(value)
        times[i] = now() - begin
    times.sort()
    print(json.dumps([first / 1000, *(times[int(count * q)] / 1000 for q in (0.5, 0.99, 0.999))]))
    import os, sys
    sys.stdout.flush()
    os._exit(0)
    """
IDLE = """
    import json, os, threading, time
    time.sleep({pause})
    try:
        memory = int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGESIZE')
        threads = len(os.listdir('/proc/self/task')) - 1
    except OSError:
        import resource
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if os.uname().sysname == 'Darwin' else 1024)
        threads = threading.active_count() - 1
    print(json.dumps([memory / 2**20, threads]))
    import sys
    sys.stdout.flush()
    os._exit(0)
    """
LEAVE = "import os; os._exit(0)"
END = "import sys, time; print(time.time()); sys.stdout.flush()"


def plain(code: str) -> str:
    """Take the common indentation away."""
    lines = [line for line in code.splitlines() if line.strip()]
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join(line[indent:] for line in lines)


def program(library: Library, url: str, *, quiet: bool = False) -> str:
    """Write a program that is ready to record."""
    start = library.quiet if quiet else library.start
    parts = (f"url, values = {url!r}, [f'v{{i}}' for i in range({VALUES})]", library.load, start)
    return "\n".join([*map(plain, parts), f"def record(i):\n    {library.record}"])


class Machine:
    """Runs programs in processes of their own, each in an empty folder."""

    def __init__(self, python: str, folder: Path) -> None:
        self.python = python
        self.folder = folder
        self.runs = 0
        self.clean = {name: value for name, value in os.environ.items() if "PROXY" not in name.upper()}

    def run(self, code: str) -> tuple[float, str, float]:
        """Return the wall time, what was printed, and when the process had ended."""
        self.runs += 1
        folder = self.folder / str(self.runs)
        folder.mkdir()
        script = folder / "program.py"
        script.write_text(code, "utf-8")
        begin = time.perf_counter()
        done = subprocess.run(
            [self.python, "-I", script], cwd=folder, env=self.clean, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        wall, ended = time.perf_counter() - begin, time.time()
        if done.returncode:
            raise RuntimeError(f"a program failed:\n{code}\n{done.stderr[-3000:]}")
        return wall, done.stdout, ended

    def json(self, code: str) -> Any:
        """Return what a program printed as JSON last."""
        return json.loads(self.run(code)[1].splitlines()[-1])


class Sink(BaseHTTPRequestHandler):
    """Takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(202 if self.path == "/v1/reports" else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST  # noqa: N815 - named by the base class

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def servers() -> Iterator[tuple[str, str, str]]:
    """Give the addresses of a server that answers, of none, and of one that never answers."""
    sink = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    Thread(target=sink.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        yield tuple(f"http://127.0.0.1:{port}" for port in (sink.server_port, closed.getsockname()[1], silent.getsockname()[1]))
    sink.shutdown()
    sink.server_close()


def measure(machine: Machine, names: list[str], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Measure everything, in turns."""
    with servers() as (sink, closed, silent):
        results: dict[str, dict[str, list[float]]] = {name: {} for name in ["", *names]}

        def note(name: str, **figures: float) -> None:
            for figure, value in figures.items():
                results[name].setdefault(figure, []).append(value)

        for turn in range(options.processes):
            note("", wall=machine.run(LEAVE)[0])
            for name in names:
                library = LIBRARIES[name]
                imported = machine.run(f"{plain(library.load)}\n{LEAVE}")[0]
                ready = machine.run(f"{program(library, sink)}\n{LEAVE}")[0]
                if turn:  # the first one writes bytecode
                    note(name, imported=imported, ready=ready)
        for turn in range(options.rounds):
            note("", memory=machine.json(plain(IDLE.format(pause=0)))[0])
            for name in names:
                library = LIBRARIES[name]
                first, p50, p99, p999 = machine.json(
                    program(library, sink, quiet=True) + "\n" + plain(LOOP.format(count=options.calls))
                )
                if library.repeat:
                    again = library._replace(record=library.repeat)
                    loop = program(again, sink, quiet=True) + "\n" + plain(LOOP.format(count=options.calls))
                    note(name, repeat=machine.json(loop)[1])
                work = f"\nfor i in range(10): record(i)\n{library.flush}\n"
                remainder, _ = machine.json(program(library, sink) + "\n" + plain(IDLE.format(pause=0)))
                idle, threads = machine.json(program(library, sink) + work + plain(IDLE.format(pause=0.5)))
                note(name, first=first, p50=p50, p99=p99, p999=p999, rest=remainder, idle=idle, threads=threads)
                for figure, url in (("down", closed), ("hung", silent)):
                    _, printed, ended = machine.run(program(library, url) + "\nfor i in range(10): record(i)\n" + END)
                    note(name, **{figure: ended - float(printed.splitlines()[-1])})
            print(f"round {turn + 1} of {options.rounds} done", file=sys.stderr)
    wall, memory = min(results[""]["wall"]), statistics.median(results[""]["memory"])
    return {
        name: {
            "import": 1000 * (min(results[name]["imported"]) - wall),
            "ready": 1000 * (min(results[name]["ready"]) - wall),
            **{
                figure: statistics.median(results[name][figure])
                for figure in ("first", "p50", "p99", "p999", "repeat")
                if figure in results[name]
            },
            **{figure: statistics.median(results[name][figure]) - memory for figure in ("rest", "idle")},
            "threads": statistics.median(results[name]["threads"]),
            "down": max(results[name]["down"]),
            "hung": max(results[name]["hung"]),
        }
        for name in names
    }


COLUMNS = {
    "import": "import ms",
    "ready": "ready ms",
    "first": "first us",
    "p50": "p50 us",
    "p99": "p99 us",
    "p999": "p99.9 us",
    "repeat": "repeat us",
    "rest": "rest MiB",
    "idle": "idle MiB",
    "threads": "threads",
    "down": "down s",
    "hung": "hung s",
}


def digits(number: float) -> str:
    """Write three significant digits, without an exponent."""
    if abs(number) < 1e-9:
        return "0"
    return f"{number:.{max(0, 2 - math.floor(math.log10(abs(number))))}f}"


def multiple(theirs: float | None, ours: float | None) -> str:
    """Write how many times the one is the other, where that says anything."""
    return "-" if theirs is None or ours is None or ours < NOISE else f"{digits(theirs / ours)}x"


def table(figures: dict[str, dict[str, float]], *, markdown: bool) -> str:
    """Write the figures, and those of the others as multiples of ours."""
    first = next(iter(figures))
    lines = [["", *COLUMNS.values()]]
    lines += [[name, *(digits(row[column]) if column in row else "-" for column in COLUMNS)] for name, row in figures.items()]
    for name, row in figures.items():
        if name.split()[0] != first.split()[0]:
            ratios = (multiple(row.get(column), figures[first].get(column)) for column in COLUMNS)
            lines.append([f"{name} / {first}", *ratios])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rows = [
        [cell.ljust(w) if not i else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))]
        for line in lines
    ]
    if not markdown:
        return "\n".join("  ".join(row) for row in rows)
    rule = "|".join(["---", *["---:"] * len(COLUMNS)])
    written = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([written[0], f"|{rule}|", *written[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(LIBRARIES), default=list(LIBRARIES), help="some libraries")
    parser.add_argument("--quick", action="store_true", help="few processes, few calls")
    parser.add_argument("--markdown", action="store_true", help="write a table for a README")
    parser.add_argument("--json", type=Path, help="write the figures to a file, too")
    parser.add_argument("--venv", type=Path, default=Path.home() / ".cache" / "deniable-sdk-rivals", help="where they live")
    parser.add_argument("--python", default=sys.executable, help="which makes the environment")
    options = parser.parse_args()
    options.processes, options.rounds, options.calls = (4, 1, 3000) if options.quick else (21, 5, 20_000)
    python = environment(options.venv, options.python, REQUIREMENTS)
    install = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--force-reinstall",
        "--no-deps",
        str(ROOT),
    ]
    subprocess.run(install, check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Machine(python, Path(folder)), options.only, options)
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    print(table(figures, markdown=options.markdown))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    slow = {name: row["repeat"] for name, row in figures.items() if row.get("repeat", 0) >= REPEAT}
    if slow:
        sys.exit(f"a call that is refused takes less than {REPEAT:g} microseconds; got {slow}")
    if figures.get("deniable absurd", {}).get("p50", 0) >= ABSURD:
        sys.exit(f"a call with an absurd answer takes less than {ABSURD:g} microseconds")


if __name__ == "__main__":
    main()
