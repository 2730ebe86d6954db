"""What is rare and must happen in some seed; otherwise the simulation tests less than it seems to.

What other runs may show but 2,000 seeds need not reach is not listed.
"""

SOMETIMES = (
    # leases
    "a process was stopped for longer than a lease",
    "a zombie's renew was refused",
    "a zombie's settle was refused",
    "a zombie's progress was refused",
    "a zombie's settle_one was refused",
    "a zombie's record was refused",
    "renewed after its end",
    "renewed just before it was recovered",
    "a worker drained",
    "the machine was started anew",
    "everybody died at once",
    # tries
    "lost in company, its try given back",
    "lost after it had got on: it pays nothing",
    "it got on, and the deaths of its workers are forgiven",
    "lost for the last time: a dead letter",
    "poison ended in the dead letters",
    "a retry had no tries left",
    # unknown commits
    "a commit failed",
    "the answer to accept was lost",
    "the answer to claim was lost",
    "the answer to renew was lost",
    "the answer to settle was lost",
    "the answer to settle_one was lost",
    "the answer to record was lost",
    "the answer to withdraw was lost",
    "an enqueue was asked for again",
    "a producer never learnt whether its tasks came in",
    "a claim was asked for again by its grant",
    "a settle was accepted again",
    # keys
    "a key was taken already",
    "a key belonged to other work",
    "an enqueue was refused for its key",
    "an enqueue was refused for its time",
    "a key was taken over from an ended task",
    # limits
    "a claim found its gates full",
    "a lower limit sent tasks back behind their keys",
    # cancellation and expiry
    "a cancellation was answered cancelled",
    "a cancellation was answered requested",
    "a cancellation was answered ended",
    "a cancellation was answered unknown",
    "a holder was told to cancel",
    "granted although its cancellation was asked for",
    "cancelled when it came up",
    "a retry was overtaken by a cancellation",
    "lost, and cancelled by recovery",
    "expired while it waited",
    "expired when it came up",
    "a retry came too late",
    # steps, signals, children
    "an attempt went on from a recorded step",
    "a parent went on waiting for its other children",
    "woken before it was put down",
    "the sweep woke what its waker had not",
    # operators and cleanup
    "an ended task got a new life",
    "a delayed task went ahead",
    "a dead letter was discarded",
    "a change was answered edited",
    "a change was answered begun",
    "a change was answered changed",
    "a task got another place before it began",
    "the answer to edit was lost",
    "cleanup kept what a parent may still ask for",
)
