"""What a customer may want, in the order of the network's outputs."""

INTENTS = (
    "order-status",
    "cancel-order",
    "change-address",
    "delivery-late",
    "return-item",
    "refund-status",
    "exchange-item",
    "invoice",
    "payment-failed",
    "promotion",
    "price-question",
    "stock-question",
    "account-locked",
    "warranty",
    "complaint",
    "talk-to-a-person",
)
