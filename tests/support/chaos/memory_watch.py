"""Samples the resident memory of a fleet's relays, each process by itself.

    with MemoryWatch(fleet) as memory:
        ...
    memory.slope()       # (kB a minute, seconds it was watched) of the one that lived longest, after its warm-up
    memory.growth()      # bytes between the middle and the end of its life, with the noise taken out
    memory.stalls        # [(from, to)] by time.monotonic(), in which this machine gave the watch no time at all"""

import statistics
import threading
import time

EVERY_S = 0.5
WARM_UP = 0.25  # of a life
STALL_S = 5  # a sample that is late by so much was not late for what it does


class MemoryWatch:
    def __init__(self, fleet):
        self.fleet = fleet
        self.samples = {}  # relay's name -> [(seconds, bytes)]
        self.stalls = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def _watch(self):
        started = before = time.monotonic()
        while not self._over.wait(EVERY_S):
            if time.monotonic() - before > STALL_S:
                self.stalls.append((before, time.monotonic()))
            before = time.monotonic()
            for place in self.fleet.places:
                name, relay = place.name, place.relay
                size = relay.rss() if relay and relay.process else 0
                if size:
                    self.samples.setdefault(name, []).append((time.monotonic() - started, size))

    def longest(self):
        """Samples of the process that was watched for the longest time, without its warm-up."""
        lives = sorted(self.samples.values(), key=lambda life: life[-1][0] - life[0][0])
        return lives[-1][int(len(lives[-1]) * WARM_UP):] if lives else []

    def slope(self):
        life = self.longest()
        if len(life) < 4:
            return 0.0, 0.0
        line = statistics.linear_regression([at for at, _ in life], [size for _, size in life])
        return line.slope * 60 / 1024, life[-1][0] - life[0][0]

    def growth(self):
        life = self.longest()
        third = len(life) // 3
        if third == 0:
            return 0
        return statistics.median(size for _, size in life[-third:]) - statistics.median(size for _, size in life[:third])

    def stop(self):
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()
