"""Passwords while others guess from one address or from many (S17), and streams of users that are changed meanwhile."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
from collections import Counter
from pathlib import Path

import pytest

from deploy.local.certificates import write_private
from mm2py.logs import make_logger
from mm2py.secret import Secret
from mm2py_rest.access import authentication
from mm2py_rest.access.authentication import Authentication
from mm2py_rest.access.callers import Caller, Role
from mm2py_rest.access.hashes import PasswordHash, hash_password, hash_token, parse_password_hash
from mm2py_rest.access.turns import REST_S, WAITING_MOST_OF_ONE
from mm2py_rest.access.users import UsersFile
from mm2py_rest.errors import RestError
from tests.fakes.virtual_time import VirtualClock

pytestmark = pytest.mark.virtual_time(limit_s=100_000)

HASH_S = 0.1
"""So long a check takes here, in virtual time."""
RIGHT = "right"
HASHES = {name: hash_password(Secret(RIGHT)) for name in ("alice", "bob")}
PARSED = [parse_password_hash(text) for text in HASHES.values()]
HERE, ELSEWHERE = "192.0.2.66", "198.51.100.1"


class Door:
    """Who lets in, and what it has checked."""

    def __init__(self, users: Path) -> None:
        self.users = users
        self.write(**HASHES)
        self.log = io.StringIO()
        self.checked_at_s: list[float] = []
        log = make_logger("info", "json", self.log)
        self.authentication = Authentication(
            UsersFile(users, self.log.write), VirtualClock(), log, matching=self._matching
        )

    def write(self, **users: str) -> None:
        write_private(self.users, "".join(f"{name}:{proof}:reader\n" for name, proof in users.items()).encode())

    def _matching(self, wanted: PasswordHash, password: Secret) -> asyncio.Future[bool]:
        loop = asyncio.get_running_loop()
        self.checked_at_s.append(loop.time())
        ended = loop.create_future()
        loop.call_later(HASH_S, ended.set_result, wanted in PARSED and password.reveal() == RIGHT)
        return ended

    async def caller(self, password: str, address: str = HERE, name: str = "alice") -> Caller:
        header = b"Basic " + base64.b64encode(f"{name}:{password}".encode())
        return await self.authentication.caller(header, address, None)

    async def status(self, password: str, address: str = HERE, name: str = "alice") -> int:
        try:
            await self.caller(password, address, name)
        except RestError as error:
            return error.status
        return 200


@pytest.fixture
async def door(tmp_path: Path) -> Door:
    return Door(tmp_path / "users")


async def guess(door: Door, address: str, each_s: float, statuses: Counter[int]) -> None:
    """Guess for ever, a new password each time, and wait for no answer."""
    async with asyncio.TaskGroup() as tasks:
        number = 0
        while True:

            async def one(password: str) -> None:
                statuses[await door.status(password, address)] += 1

            tasks.create_task(one(f"guess {number}"))
            number += 1
            await asyncio.sleep(each_s)


async def test_a_wrong_password_a_minute_does_not_keep_the_right_one_out_of_the_same_address(door: Door) -> None:
    statuses: Counter[int] = Counter()
    guessing = asyncio.create_task(guess(door, HERE, 60.0, statuses))
    await asyncio.sleep(3600.0)
    assert statuses == {401: 60}
    assert await door.status(RIGHT) == 200
    assert await door.status(RIGHT, name="bob") == 200
    guessing.cancel()


async def test_what_was_right_passes_at_once_without_a_check_whatever_others_try_from_its_address(door: Door) -> None:
    assert await door.status(RIGHT) == 200
    statuses: Counter[int] = Counter()
    guessing = asyncio.create_task(guess(door, HERE, 0.05, statuses))
    loop = asyncio.get_running_loop()
    for _ in range(50):
        await asyncio.sleep(1.0)
        before_s = loop.time()
        assert await door.status(RIGHT) == 200
        assert loop.time() == before_s
    assert statuses[429] > 800, "the queue is full"
    guessing.cancel()


async def test_a_crowd_that_guesses_at_one_address_keeps_nobody_out_elsewhere_and_guesses_at_a_bounded_rate(
    door: Door,
) -> None:
    statuses: Counter[int] = Counter()
    guessing = asyncio.create_task(guess(door, HERE, 0.05, statuses))
    await asyncio.sleep(100.0)
    assert statuses[401] <= 100.0 / REST_S + 1
    before_s = asyncio.get_running_loop().time()
    assert await door.status(RIGHT, ELSEWHERE) == 200
    assert asyncio.get_running_loop().time() - before_s <= 2 * HASH_S + 0.01
    guessing.cancel()


async def test_of_many_addresses_that_guess_each_has_its_turn_and_so_has_the_right_one(door: Door) -> None:
    statuses: Counter[int] = Counter()
    crowd = [asyncio.create_task(guess(door, f"203.0.113.{number}", 0.5, statuses)) for number in range(30)]
    await asyncio.sleep(60.0)
    before_s = asyncio.get_running_loop().time()
    assert await door.status(RIGHT, ELSEWHERE) == 200
    assert asyncio.get_running_loop().time() - before_s <= 31 * HASH_S + 0.01
    assert all(later - earlier >= HASH_S for earlier, later in itertools.pairwise(door.checked_at_s))
    for one in crowd:
        one.cancel()


async def test_a_full_queue_says_when_to_come_again(door: Door) -> None:
    waiting = [asyncio.create_task(door.status(f"guess {number}")) for number in range(WAITING_MOST_OF_ONE + 1)]
    await asyncio.sleep(0)
    with pytest.raises(RestError) as raised:
        await door.caller(RIGHT)
    assert raised.value.status == 429 and int((raised.value.headers or {})["Retry-After"]) >= 1
    assert await asyncio.gather(*waiting) == [401] * len(waiting)
    assert await door.status(RIGHT) == 200


async def test_many_requests_with_one_password_take_one_check(door: Door) -> None:
    """A page asks six things at once, and so do all who open it when the process has just started."""
    assert await asyncio.gather(*(door.status(RIGHT) for _ in range(100))) == [200] * 100
    assert len(door.checked_at_s) == 1
    assert await asyncio.gather(*(door.status("wrong") for _ in range(100))) == [401] * 100
    assert len(door.checked_at_s) == 2


async def test_what_was_right_is_known_while_it_is_used_and_its_line_is_there(door: Door) -> None:
    for _ in range(5):
        assert await door.status(RIGHT) == 200
        await asyncio.sleep(authentication.KNOWN_S - 1.0)
    assert len(door.checked_at_s) == 1
    await asyncio.sleep(2.0)
    assert await door.status(RIGHT) == 200
    assert len(door.checked_at_s) == 2, "it was not used for so long"
    door.write(**HASHES, carol=hash_token(Secret("c" * 40)))
    assert await door.status(RIGHT) == 200
    assert len(door.checked_at_s) == 2, "another line was added"
    door.write(alice=hash_password(Secret("another")))
    assert await door.status(RIGHT) == 401
    door.write(bob=HASHES["bob"])
    assert await door.status(RIGHT) == 401


async def test_a_user_that_is_removed_while_the_password_is_checked_does_not_get_in(door: Door) -> None:
    asking = asyncio.create_task(door.status(RIGHT))
    await asyncio.sleep(HASH_S / 2)
    door.write(bob=HASHES["bob"])
    assert await asking == 401


async def test_a_password_that_is_replaced_while_it_is_checked_does_not_get_in(door: Door) -> None:
    asking = asyncio.create_task(door.status(RIGHT))
    await asyncio.sleep(HASH_S / 2)
    door.write(alice=HASHES["bob"], bob=HASHES["bob"])
    assert await asking == 401


async def test_what_is_known_is_bounded(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "KNOWN_MOST", 1)
    for name in ("alice", "bob", "alice"):
        assert await door.status(RIGHT, name=name) == 200
    assert len(door.checked_at_s) == 3


async def test_a_user_that_is_removed_or_changed_is_known_so_though_its_address_is_full_of_guesses(door: Door) -> None:
    """An event stream went on while its address had to wait. ``Authentication.still`` is what a stream asks."""
    caller = await door.caller(RIGHT)
    statuses: Counter[int] = Counter()
    guessing = asyncio.create_task(guess(door, HERE, 0.05, statuses))
    await asyncio.sleep(10.0)
    assert statuses[429] > 0
    still = door.authentication.still
    assert still(caller) == caller
    write_private(door.users, f"alice:{HASHES['alice']}:operator:A->B\n".encode())
    assert still(caller).user.role is Role.OPERATOR and still(caller).user.flows == {"A->B"}
    door.write(alice=hash_password(Secret(RIGHT)))
    with pytest.raises(RestError):
        still(caller)
    door.write(bob=HASHES["bob"])
    with pytest.raises(RestError):
        still(caller)
    guessing.cancel()


async def test_a_check_that_breaks_is_an_error_of_its_request_and_the_next_one_runs(door: Door) -> None:
    works = door.authentication._matching

    def breaks(_wanted: PasswordHash, _password: Secret) -> asyncio.Future[bool]:
        ended = asyncio.get_running_loop().create_future()
        ended.set_exception(MemoryError())
        return ended

    door.authentication._matching = breaks
    with pytest.raises(MemoryError):
        await door.caller(RIGHT)
    door.authentication._matching = works
    assert await door.status(RIGHT) == 200
