"""Receives the webhooks of GitHub: a delivery is stored and answered at once, and applied to the documents afterwards.

**Invariant.** A delivery that was answered with 202 is applied to the documents exactly once, and no document becomes
older by it.

    GitHub    POST, signed with a secret of the hook
    receive   check size and signature, then read                          receiver.py, payloads.py
              one transaction: the delivery and an event of the outbox     deliveries.py
              answer 202
    relay     deliver the events of one repository in their order          runtime/relay.py
    apply     payload → conditional writes of documents                    payloads.py, rules.py
              one transaction: mark the delivery as applied, documents

| the process dies                             | leaves                         | repaired by                          |
| -------------------------------------------- | ------------------------------ | ------------------------------------ |
| before the delivery is committed             | nothing; no answer was sent    | redelivery, or the next run          |
| after that, before the answer                | a delivery, failed for GitHub  | a redelivery is a duplicate: 202     |
| after the commit, before the relay is woken  | a pending event                | any wake-up, or the next relay       |
| before the documents are committed           | a pending event                | the relay delivers it again          |
| after that, before the event is removed      | an event, applied              | the relay delivers it again: it is   |
|                                              |                                | marked as applied, nothing happens   |

Documents in MongoDB are written before the transaction. They are written again after a crash, which changes nothing,
since the rules skip what is stored already.

Cursors are moved by runs only. A hook that was switched off or missed leaves no gap: the next run reads what changed
since the run before it, as if there were no webhooks.
"""
