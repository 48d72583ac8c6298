"""dramatiq on Redis: no-op jobs drained by one process with eight threads. Prints jobs per second."""

import logging
import os
import sys
import threading
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

URL, JOBS = sys.argv[1], int(sys.argv[2])
logging.disable(logging.CRITICAL)
broker = RedisBroker(url=URL, namespace="peer-dramatiq")
dramatiq.set_broker(broker)
lock, finished = threading.Lock(), threading.Event()
done = 0


@dramatiq.actor
def noop(n: int) -> None:
    global done
    with lock:
        done += 1
        if done == JOBS:
            finished.set()


for number in range(JOBS):
    noop.send(number)
worker = dramatiq.Worker(broker, worker_threads=8)
began = time.perf_counter()
worker.start()
finished.wait()
print(JOBS / (time.perf_counter() - began), flush=True)
os._exit(0)
