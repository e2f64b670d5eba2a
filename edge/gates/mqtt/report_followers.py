"""Registered queries that one MQTT client follows: requests `follow` and `unfollow`, and a message for each report."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine

from edge.gates.mqtt.client_output import MqttConnection
from edge.gates.report_following import REPORT, ReportFollowing, ReportSource
from edge.gates.session import Session, size_of
from edge.gates.sessions import Sessions
from edge.protocol.errors import EdgeError, NotFound, TooManyRequests
from edge.protocol.messages import (
    MAX_ENCODED_ALIAS,
    Follow,
    FollowMessage,
    UnfollowMessage,
    may_follow,
    parse_with_follow,
)
from edge.protocol.report_position import ReportPosition
from edge.task_errors import drop_error


class ReportFollowers:
    """The queries of one client. All methods are called on the event loop."""

    def __init__(
        self,
        sessions: Sessions,
        session: Session,
        connection: MqttConnection,
        streams: Callable[[], ReportSource | None],
    ) -> None:
        """`session`: of the client; it sends errors. `streams` returns None without streams."""
        self._shared = sessions
        self._session = session
        self._connection = connection
        self._streams = streams
        self._followers: dict[str, _Follower] = {}

    def receive(self, text: str) -> bool:
        """Process a request if it is one of these. Returns whether it is. The session refuses one that is too long."""
        if not may_follow(text) or size_of(text) > self._shared.limits.max_message:
            return False
        started = time.perf_counter()
        try:
            request = parse_with_follow(text, MAX_ENCODED_ALIAS)
        except EdgeError as error:
            self._session.refuse_uncounted(error, "message", started)
            return True
        if isinstance(request, FollowMessage):
            self._follow(request, started)
        elif isinstance(request, UnfollowMessage):
            self._unfollow(request, started)
        else:
            return False
        return True

    def close(self) -> None:
        """End all: the session has ended."""
        for follower in self._followers.values():
            follower.cancel()
        self._followers.clear()

    def _follow(self, request: FollowMessage, started: float) -> None:
        follower = _Follower(self._shared, self._session.peer, request, self._streams)
        try:
            follower.following.admit()
        except EdgeError as error:
            self._refuse(error, request, started)
            return
        # A client that restarts under its name follows its queries again.
        self._end(request.query)
        limit = self._shared.limits.max_subscriptions
        if len(self._followers) >= limit:
            reason = f"This client follows {limit} queries, which is the most it may ({self._shared.section}"
            self._refuse(TooManyRequests(f"{reason}.max_subscriptions); unfollow some"), request, started)
            return
        self._followers[request.query] = follower
        follower.start(self._send(follower, started))

    def _unfollow(self, request: UnfollowMessage, started: float) -> None:
        try:
            self._shared.admit(request.authorization, self._session.peer, "query")
            if not self._end(request.query):
                raise NotFound(f'This client does not follow the query "{request.query}"')
        except EdgeError as error:
            self._refuse(error, request, started)
            return
        self._shared.answered(request.kind, 200, started)
        self._connection.write(json.dumps({"unfollowed": {**_alias(request), "query": request.query}}))

    def _end(self, query: str) -> bool:
        """End following a query. Returns whether the client followed it."""
        follower = self._followers.pop(query, None)
        if follower is None:
            return False
        follower.cancel()
        if not follower.answered:
            error = NotFound("This request has ended: the client has sent another one for the same query")
            self._refuse(error, follower.request, time.perf_counter())
        return True

    async def _send(self, follower: _Follower, started: float) -> None:
        """Send the reports of a query until it ends, or the permissions of the client do."""
        request, following, woken = follower.request, follower.following, follower.woken
        try:
            after = None if request.after is None else ReportPosition(request.after, request.of)
            head = await following.begin(request.query, after)
            if not await self._connection.room():
                return
            follower.answered = True
            self._shared.answered(request.kind, 200, started)
            self._connection.write(json.dumps({"following": {**_alias(request), **head}}))
            # Without room, reports stay where they wait, and are merged.
            while await self._connection.room():
                if (report := following.take()) is not None:
                    self._connection.write(follower.begin + report.removeprefix(REPORT))
                elif (error := following.error) is not None:
                    raise error
                else:
                    await woken.wait()
                    woken.clear()
        except EdgeError as error:
            self._refuse(error, request, started)
        except Exception as error:  # noqa: BLE001  logged under an incident number
            self._refuse(self._shared.as_error(error, None), request, started)
        finally:
            following.close()
            if self._followers.get(request.query) is follower:
                del self._followers[request.query]

    def _refuse(self, error: EdgeError, request: Follow, started: float) -> None:
        # Without an alias, the client learns by the name of the query which one has ended.
        self._session.refuse(error.with_alias(request.alias or request.query), request.kind, started)


class _Follower:
    """One query that the client follows."""

    def __init__(
        self, sessions: Sessions, peer: str, request: FollowMessage, streams: Callable[[], ReportSource | None]
    ) -> None:
        self.request = request
        self.begin = REPORT if request.alias is None else f'{REPORT}"alias": {json.dumps(request.alias)}, '
        """Beginning of the message of each report."""
        self.woken = asyncio.Event()
        self.answered = False
        self.following = ReportFollowing(
            sessions,
            streams,
            request.authorization,
            peer,
            self.woken.set,
            sessions.limits.max_result,
            len(self.begin) - len(REPORT),
        )
        self._task: asyncio.Task[None] | None = None

    def start(self, sending: Coroutine[None, None, None]) -> None:
        """Run the coroutine that sends the reports."""
        self._task = asyncio.get_running_loop().create_task(sending)
        self._task.add_done_callback(drop_error)

    def cancel(self) -> None:
        """Send no more."""
        if self._task is not None:
            self._task.cancel()


def _alias(request: Follow) -> dict[str, str]:
    return {} if request.alias is None else {"alias": request.alias}
