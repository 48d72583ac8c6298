"""Every event that appears in the log, and what it tells the operator.

The code and this list are compared by a test: an event that is logged but not listed, or listed but not logged, fails.
"""

from collections.abc import Mapping
from types import MappingProxyType

EVENTS: Mapping[str, str] = MappingProxyType(
    {
        "breaker.closed": "The trial calls succeeded; calls pass again.",
        "breaker.opened": "Too many calls failed; calls are refused until it is tried again.",
        "breaker.tried": "The pause is over; a few trial calls are let through.",
        "collect.commit_failed": "What jobs brought could not be written; it is held and tried again.",
        "collect.job_crashed": "A job ended with an error of ours; its message goes to another worker.",
        "collect.settle_failed": "The gate could not be told of finished jobs; it is tried again.",
        "collect.source_failed": "A source could not make a request or read an answer; the job is tried again.",
        "database.connected": "The database answered and can serve us.",
        "database.migrated": "The schema was brought up to date.",
        "database.transaction_retried": "A deadlock or serialisation failure; the transaction is run again.",
        "gate.rebuilt": "Everything unfinished was offered to the gate again; what it had lost is there.",
        "heartbeat.lost": "This process's lease ended; what it held goes to others, and it joins anew.",
        "heartbeat.missed": "A sign of life did not reach the server; it is tried again, also after the lease ended.",
        "leader.elected": "This process is now the leader.",
        "leader.lost": "This process was the leader and its lease ended without its will.",
        "leader.resigned": "This process gave the lead up, for an orderly stop.",
        "limiter.paused": "The upstream asked for a pause; nobody gets a permit until it is over.",
        "limiter.permits_lapsed": "The server answered later than permits live; they were not used, and are spent.",
        "outbox.announce_failed": "The leader could not be told of new events; it is tried again.",
        "outbox.buried": "An event failed for good and is now a dead letter, to be replayed by hand.",
        "outbox.delivered": "An event was handled.",
        "outbox.pruned": "Notes of events handled long ago were removed.",
        "outbox.replayed": "Dead letters were put back among the pending events.",
        "outbox.retry_planned": "A handler failed; the event is tried again later.",
        "outbox.settle_failed": "What became of an event could not be written; it is tried again, and its key waits.",
        "service.drain_timed_out": "A service did not finish within its time to drain and was cancelled.",
        "service.failed": "A service fell; it is started again after a pause.",
        "service.started": "A service runs.",
        "service.stopped": "A service ended in good order.",
        "stream.buried": "A message was delivered too often without success and is now a dead letter.",
        "stream.taken_over": "Messages of a dead or stalled worker were given to another.",
        "timekeeper.source_failed": "A source of due things failed; it is tried again after a pause, the others go on.",
        "timers.promoted": "Due timers were carried out.",
        "valkey.connected": "The server answered and can serve us.",
        "valkey.embedded_failed": "The embedded server had ended and could not be started again; it is tried again.",
        "valkey.embedded_started": "This process started the embedded server; others of the same data folder share it.",
        "worker.lease_ended": "A worker has given no sign of life; its messages go to others.",
    }
)
