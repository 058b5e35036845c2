"""Chromium without a window, driven by its DevTools protocol over a pipe: messages are JSON, ended by a zero byte."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def find_browser():
    """The program's path, or None."""
    for name in PROGRAMS:
        path = shutil.which(name)
        if path:
            return path
    return None


class BrowserError(Exception):
    pass


class Page:
    """One page. `problems` collects what it wrote to the console as an error, exceptions and refused loads."""

    def __init__(self, program, timeout=60):
        self.timeout = timeout
        self.folder = tempfile.mkdtemp(prefix="browser")
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        # The browser wants 3 and 4: both ends are moved out of their way first.
        to_read, to_write = (fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_read, to_write))

        def only_the_pipe():
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
             "--force-color-profile=srgb", "--remote-debugging-pipe", "--user-data-dir=" + self.folder, "about:blank"],
            preexec_fn=only_the_pipe, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.number = 0
        self.read = b""
        self.events = []
        self.problems = []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def _message(self, deadline):
        while b"\0" not in self.read:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.from_browser], [], [], left)[0]:
                raise BrowserError("no answer within %d s" % self.timeout)
            chunk = os.read(self.from_browser, 1 << 20)
            if not chunk:
                raise BrowserError("the browser has ended with status %s" % self.process.wait())
            self.read += chunk
        message, self.read = self.read.split(b"\0", 1)
        message = json.loads(message)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:", "about:")):
            self.problems.append("loads " + params["request"]["url"])
        if method:
            self.events.append(method)
        return message

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self.to_browser, text):]
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self._message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise BrowserError("%s: %s" % (method, answer["error"]["message"]))
                return answer["result"]

    def wait_for(self, event):
        deadline = time.monotonic() + self.timeout
        while event not in self.events:
            self._message(deadline)

    def look_like(self, width, height, dark=False, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, path):
        self.events.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait_for("Page.loadEventFired")

    def value(self, script):
        """What an expression is, once promises are kept."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError("%s: %s" % (script, answer["exceptionDetails"].get("exception", {}).get("description")))
        return answer["result"].get("value")

    def frames(self, count=2):
        """Waits until so many frames are drawn."""
        self.value("new Promise(done => { let left = %d; const next = () => left-- > 0 ? requestAnimationFrame(next) : done(); next(); })" % count)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def move(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.frames()

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.frames()

    def double_click(self, x, y):
        for count in (1, 2):
            for kind in ("mousePressed", "mouseReleased"):
                self.mouse(kind, x, y, button="left", clickCount=count)
        self.frames()

    def drag(self, from_x, to_x, y):
        self.mouse("mouseMoved", from_x, y)
        self.mouse("mousePressed", from_x, y, button="left", clickCount=1)
        for step in range(1, 6):
            self.mouse("mouseMoved", from_x + (to_x - from_x) * step / 5, y, button="left", buttons=1)
        self.mouse("mouseReleased", to_x, y, button="left", clickCount=1)
        self.frames()

    def fingers(self, *moves):
        """Each move: where all fingers are, as [x, y] each."""
        for i, places in enumerate(moves):
            points = [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(places)]
            self.call("Input.dispatchTouchEvent", type="touchStart" if i == 0 else "touchMove", touchPoints=points)
            self.frames(1)
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.frames()

    def key(self, key, **more):
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **more)
        self.frames()

    def box(self, selector):
        """Left, top, width and height on the screen, scrolled to."""
        return self.value("(() => { const e = document.querySelector(%s); e.scrollIntoView({block: 'nearest'}); "
                          "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()" % json.dumps(selector))

    def screenshot(self, path, whole=False):
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture))
