#!/usr/bin/env python3
"""Pages as people use them: shown at several sizes, light and dark, hovered, zoomed, searched, by keyboard.

usage: browser_test.py PROGRAM [FOLDER]   PROGRAM writes sample pages; FOLDER keeps them and pictures
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402

SIZES = {"light": dict(width=1200, height=800), "dark": dict(width=1200, height=800, dark=True),
         "phone": dict(width=390, height=844, phone=True), "phone_dark": dict(width=390, height=844, dark=True, phone=True)}


def text(page, selector):
    return page.value("document.querySelector(%s).textContent" % json.dumps(selector))


class PageTest(unittest.TestCase):
    folder = None

    @classmethod
    def setUpClass(cls):
        cls.page = browser.Page(browser.find_browser())

    @classmethod
    def tearDownClass(cls):
        cls.page.close()

    def open(self, name, **size):
        self.page.problems.clear()
        self.page.look_like(**(size or SIZES["light"]))
        self.page.open(os.path.join(self.folder, name))
        self.page.frames()
        self.addCleanup(lambda: self.assertEqual(self.page.problems, []))
        return self.page

    def test_looks_right_at_all_sizes(self):
        for name, size in SIZES.items():
            page = self.open("train.html", **size)
            self.assertEqual(page.problems, [])
            self.assertLessEqual(page.value("document.documentElement.scrollWidth - innerWidth"), 0, name)
            # Both pictures are drawn: several colors of layers are in each.
            for selector in ("#curve canvas", "#cycle"):
                colors = page.value("""(() => {
                    const canvas = document.querySelector(%s), colors = new Set();
                    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
                    for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200) colors.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
                    return colors.size; })()""" % json.dumps(selector))
                self.assertGreater(colors, 8, (name, selector))
            page.screenshot(os.path.join(self.folder, name + ".png"), whole=True)
        dark = self.page.value("getComputedStyle(document.body).backgroundColor")
        self.assertEqual(dark, "rgb(17, 20, 24)")

    def test_nothing_overlaps_or_is_cut_off(self):
        for name, size in SIZES.items():
            page = self.open("train.html", **size)
            overlaps = page.value("""(() => {
                const found = [], boxes = [...document.querySelectorAll('header h1, header p, .tools > *, .head > *, #legend li')]
                    .filter((e) => e.getClientRects().length > 0 && e.textContent + (e.placeholder || '') !== '')
                    .map((e) => [e, e.getBoundingClientRect()]);
                for (let i = 0; i < boxes.length; ++i) for (let j = i + 1; j < boxes.length; ++j) {
                    const [a, p] = boxes[i], [b, q] = boxes[j];
                    if (a.contains(b) || b.contains(a)) continue;
                    if (Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1 && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 1)
                        found.push(a.textContent + ' over ' + b.textContent);
                }
                return found; })()""")
            self.assertEqual(overlaps, [], name)

    def test_totals_are_those_of_the_recording(self):
        page = self.open("train.html")
        # By a plain loop over all changes: the most at once, without pages that nobody uses.
        most = page.value("""(() => {
            const r = app.recording, changes = [];
            for (let i = 0; i < r.steps.count; ++i) if (r.kinds[r.steps.kind[i]] !== 'unreferenced') changes.push([r.steps.time[i], r.steps.bytes[i]]);
            for (let c = 0; c < r.cycles.count; ++c) {
                const k = r.kindsOfCycles[r.cycles.kind[c]], q = k.requests;
                for (let i = 0; i < q.count; ++i) {
                    changes.push([r.cycles.begin[c] + q.born[i], q.taken[i]]);
                    changes.push([r.cycles.begin[c] + q.died[i], -q.taken[i]]);
                }
            }
            changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
            let now = 0, most = 0;
            for (const [, bytes] of changes) most = Math.max(most, now += bytes);
            return most; })()""")
        self.assertAlmostEqual(page.value("app.curve.most"), most, delta=1)
        for grouping in "kopt":
            page.key(grouping)
            self.assertAlmostEqual(page.value("app.curve.most"), most, delta=1)

    def test_hover_tells_of_the_curve_and_of_arrays(self):
        page = self.open("train.html")
        left, top, width, height = page.box("#curve")
        page.move(left + width / 2, top + height * 0.7)
        self.assertIn("conv2d", text(page, "#tip"))
        self.assertIn("data set", text(page, "#legend"))
        self.assertIn("at ", text(page, "#legend-of"))
        page.move(5, 5)
        self.assertTrue(page.value("document.getElementById('tip').hidden"))
        left, top, width, height = page.box("#cycle")
        page.move(left + width * 0.4, top + height * 0.85)
        tip = text(page, "#tip")
        for part in ("conv2d", "f32 [64, 28, 28, 32]", "layer conv1", "Request", "workspace training"):
            self.assertIn(part, tip)
        page.click(left + width * 0.4, top + height * 0.85)
        self.assertIn("Trainer::Step", text(page, "#details"))

    def test_drag_zooms_and_keys_move(self):
        page = self.open("train.html")
        left, top, width, height = page.box("#curve")
        page.drag(left + width * 0.4, left + width * 0.6, top + height / 2)
        begin, end = page.value("[app.curve.from, app.curve.to]")
        whole = page.value("app.recording.duration")
        self.assertLess(end - begin, whole * 0.3)
        self.assertIn(" to ", text(page, "#span"))
        page.key("+")
        self.assertLess(page.value("app.curve.to - app.curve.from"), (end - begin) * 0.6)
        before = page.value("app.curve.from")
        page.key("ArrowRight")
        self.assertGreater(page.value("app.curve.from"), before)
        page.key("0")
        self.assertEqual(page.value("[app.curve.from, app.curve.to]"), [0, whole])
        self.assertEqual(page.value("app.curve.graph.xAxisRange()[1]"), whole)
        page.key("[")
        page.drag(left + width * 0.18, left + width * 0.3, top + height / 2)
        self.assertEqual(text(page, "#cycle-title"), "training, cycle 1", "a drag chooses no cycle")
        page.key("]")
        page.double_click(left + width * 0.5, top + height / 2)
        self.assertEqual(page.value("[app.curve.from, app.curve.to]"), [0, whole])
        page.click(left + page.value("app.curve.graph.toDomXCoord(1.5e6)"), top + height / 2)
        self.assertEqual(text(page, "#cycle-title"), "training, cycle 1")

    def test_two_fingers_zoom_and_one_does_not(self):
        page = self.open("train.html", **SIZES["phone"])
        left, top, width, height = page.box("#curve")
        x, y = left + width / 2, top + height / 2
        whole = page.value("app.recording.duration")
        page.fingers([[x, y]], [[x + 30, y]], [[x + 60, y]])
        self.assertEqual(page.value("app.curve.to - app.curve.from"), whole)
        page.fingers([[x - 20, y], [x + 20, y]], [[x - 40, y], [x + 40, y]], [[x - 80, y], [x + 80, y]])
        self.assertLess(page.value("app.curve.to - app.curve.from"), whole * 0.6)
        self.assertEqual(page.value("app.curve.graph.xAxisRange()"), page.value("[app.curve.from, app.curve.to]"))

    def test_search_finds_arrays_and_dims_others(self):
        page = self.open("train.html")
        page.key("/")
        self.assertEqual(page.value("document.activeElement.id"), "search")
        for letter in "max_pool conv1":
            page.key(letter)
        rows = page.value("[...document.querySelectorAll('#table tbody tr')].map((row) => row.textContent)")
        self.assertGreater(len(rows), 0)
        for row in rows:
            self.assertIn("max_pool", row)
            self.assertIn("conv1", row)
        page.key("Escape")
        self.assertEqual(page.value("document.getElementById('search').value"), "")

    def test_cycles_are_chosen_compared_and_gone_through(self):
        page = self.open("train.html")
        self.assertIn("cycle 2", text(page, "#cycle-title"))
        page.key("[")
        self.assertIn("training, cycle 1", text(page, "#cycle-title"))
        page.value("document.querySelectorAll('#table tbody tr button')[1].click()")
        page.frames()
        self.assertFalse(page.value("document.getElementById('second-part').hidden"))
        self.assertIn("outside \u2192 pages", text(page, "#comparison"))
        page.value("document.getElementById('cycle').focus()")
        page.key("Home")
        page.key("ArrowRight")
        self.assertIn("2 of 64", text(page, "#details"))

    def test_findings_are_listed_and_marked(self):
        page = self.open("train.html")
        self.assertEqual(page.value("app.curve.marks.length"), 1)
        page.value("document.getElementById('tab-findings').click()")
        table = text(page, "#table")
        self.assertIn("Leaked 1", table)
        self.assertIn("Missed 6", table)
        page.value("document.querySelector('#table tbody tr').click()")
        self.assertIn("leaked", text(page, "#details"))
        self.assertIn("debug </script><b>", text(page, "#details"))

    def test_can_be_used_by_keyboard_and_by_readers_of_screens(self):
        page = self.open("train.html")
        names = page.value("""[...document.querySelectorAll('button, input, canvas[tabindex]')]
            .filter((e) => e.getClientRects().length > 0)
            .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.outerHTML)""")
        self.assertEqual(names, [])
        page.key("?")
        self.assertTrue(page.value("document.getElementById('keys').open"))

    def test_a_hundred_thousand_events_load_and_stay_fluid(self):
        page = self.open("large.html")
        self.assertGreater(page.value("app.recording.steps.count"), 70000)
        # What it takes is printed, and looked at by who changes the page: a machine that is busy says nothing.
        frames = page.value("""(async () => {
            const times = [];
            for (let i = 0; i < 20; ++i) {
                const began = performance.now();
                app.hoverTime(app.recording.duration * i / 20, {clientX: 100, clientY: 100});
                times.push(performance.now() - began);
            }
            return times.sort((a, b) => a - b)[10]; })()""")
        zoom = page.value("(() => { const began = performance.now(); app.curve.zoom(0.5); return performance.now() - began; })()")
        print("100,000 events: loaded in %.0f ms, hover %.1f ms, zoom %.0f ms" % (page.value("loadMilliseconds"), frames, zoom))
        page.screenshot(os.path.join(self.folder, "large.png"))


if __name__ == "__main__":
    program = sys.argv[1]
    keep = sys.argv[2] if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as scratch:
        PageTest.folder = keep or scratch
        subprocess.run([program, PageTest.folder], check=True)
        unittest.main(argv=sys.argv[:1], verbosity=2)
