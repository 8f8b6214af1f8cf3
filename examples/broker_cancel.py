"""Cancel a message that is no longer needed: a customer who has bought needs no reminder of a forgotten cart.

Start a broker first: `chronoline up`. Another one is named by CHRONOLINE_ADDRESS.
"""

from datetime import timedelta

from chronoline import Client, Refused


def item_added(client: Client, cart: str) -> None:
    # Each new item moves the reminder: eight hours from now, by the broker's clock.
    client.send(
        "carts", id=cart, json={"cart": cart}, delay=timedelta(hours=8), if_exists="replace"
    )


def bought(client: Client, cart: str) -> None:
    try:
        client.cancel("carts", cart)
        print(f"{cart}: no reminder")
    except Refused as refused:
        # A consumer holds a lease, which not even the owner can break: it sends the reminder now.
        print(f"{cart}: too late, {refused.outcomes[0].refusal}")


# Only the producer group that sent a message can cancel it.
with Client(producer_group="shop") as client:
    client.create_topic("carts")
    item_added(client, "cart-1")
    item_added(client, "cart-1")
    item_added(client, "cart-2")
    bought(client, "cart-1")  # no reminder
    bought(client, "cart-1")  # no reminder: a repeated cancel changes nothing

    client.reschedule("carts", "cart-2", delay=0)  # the eight hours are over
    for lease in client.consume("carts"):
        bought(client, lease.json()["cart"])  # too late, leased
        lease.ack()
        break
