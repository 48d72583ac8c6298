"""huey on Redis: no-op jobs drained by one process with four threads. Prints jobs per second."""

import logging
import os
import sys
import threading
import time

from huey import RedisHuey

URL, JOBS = sys.argv[1], int(sys.argv[2])
logging.disable(logging.CRITICAL)
huey = RedisHuey("peer-huey", url=URL, results=False)
lock, finished = threading.Lock(), threading.Event()
done = 0


@huey.task()
def noop(n: int) -> None:
    global done
    with lock:
        done += 1
        if done == JOBS:
            finished.set()


for number in range(JOBS):
    noop(number)
consumer = huey.create_consumer(workers=4, periodic=False)
began = time.perf_counter()
consumer.start()
finished.wait()
print(JOBS / (time.perf_counter() - began), flush=True)
os._exit(0)
