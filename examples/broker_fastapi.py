"""A web service that schedules: FastAPI, with one client for the life of the app.

Start a broker first: `chronoline up`. Another one is named by CHRONOLINE_ADDRESS. Then

    uvicorn --app-dir examples broker_fastapi:app
    curl -X PUT localhost:8000/reminders/tea -H 'content-type: application/json' \\
        -d '{"text": "the tea is ready", "at": "2030-01-01T12:00:00Z"}'
    curl -X DELETE localhost:8000/reminders/tea
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel

from chronoline import AsyncClient, BrokerUnavailable, OutcomeUnknown, Refused

logger = logging.getLogger(__name__)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # One client sends concurrent requests in one frame: share it.
    async with AsyncClient(timeout=5) as client:
        await client.create_topic("web-reminders")
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


def client_of(request: Request) -> AsyncClient:
    client: AsyncClient = request.app.state.client
    return client


Client = Annotated[AsyncClient, Depends(client_of)]


class Reminder(BaseModel):
    text: str
    at: AwareDatetime


@app.put("/reminders/{name}", status_code=201)
async def schedule(name: str, reminder: Reminder, client: Client) -> dict[str, str]:
    # With the caller's id and "replace" the request can be repeated, as a PUT should be.
    await client.send(
        "web-reminders", json=reminder.text, id=name, due=reminder.at, if_exists="replace"
    )
    return {"id": name}


@app.delete("/reminders/{name}", status_code=204)
async def cancel(name: str, client: Client) -> None:
    await client.cancel("web-reminders", name)


@app.exception_handler(Refused)
async def refused(_: Request, error: Refused) -> JSONResponse:
    # Nothing has this id, or it is gone already. The others are conflicts, such as a lease.
    if {outcome.refusal for outcome in error.outcomes} <= {"not_found", "deleted"}:
        return JSONResponse({"detail": "there is no such reminder"}, 404)
    return JSONResponse({"detail": "the reminder is on its way already"}, 409)


@app.exception_handler(BrokerUnavailable)
@app.exception_handler(OutcomeUnknown)
async def unavailable(_: Request, error: Exception) -> JSONResponse:
    # Nothing was changed, or the outcome is unknown: both requests may be repeated. The reason is for those
    # who run this service, not for its clients.
    logger.error("the broker did not answer: %s", error)
    return JSONResponse({"detail": "try again in a moment"}, 503, {"Retry-After": "1"})
