"""Wake-ups between the parts of a fleet: publish, subscribe, doorbells and message streams.

Nothing here carries truth. A message may be lost, late, doubled or out of order; whoever receives
one looks into the store. Losing every message costs only latency, which the tests prove by running
the engine on `DroppingPubSub`.
"""

from perdure.pubsub.bus import PubSub, PubSubClosed, Subscription
from perdure.pubsub.doorbell import Doorbell, Listener
from perdure.pubsub.dropping import DroppingPubSub
from perdure.pubsub.memory import MemoryPubSub
from perdure.pubsub.stream import Stream

__all__ = [
    "Doorbell",
    "DroppingPubSub",
    "Listener",
    "MemoryPubSub",
    "PubSub",
    "PubSubClosed",
    "Stream",
    "Subscription",
]
