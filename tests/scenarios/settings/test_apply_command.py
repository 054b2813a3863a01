"""``mm2py apply``: what it shows, what it stores, and that the workers of the flow run by it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from mm2py.cli.apply import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, Connected, apply, parse_arguments
from mm2py.config.configuration import read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.kafka.errors import BrokerUnreachable
from mm2py.kafka.port import BrokerId, Brokers, ProduceRequest
from mm2py.login import host_name, login_name
from mm2py.records.author import Author
from mm2py.shared_settings.config_log import ensure_configs_topic
from mm2py.status.exit_codes import EXIT_CHANGES
from tests.scenarios.config_world import ADDRESSES, BY_MM2, TOPIC, FlowWorker, put_as_mm2, stored_in
from tests.scenarios.gate import Request
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

ME = f"{login_name()} on {host_name()}"


class Link:
    """A connection of the command to a cluster. ``meets`` is called with each request, and may raise."""

    def __init__(self, cluster: Brokers, meets: Callable[[Request], None]) -> None:
        self._cluster = cluster
        self._meets = meets

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> Any:
        self._meets(request)
        return await self._cluster.send(broker, request, channel=channel)

    async def close(self) -> None:
        pass


class Shell:
    """Runs the command with a settings file."""

    def __init__(self, world: World, folder: Path, *, meets: Callable[[Request], None] = lambda _: None) -> None:
        self.out = ""
        self.warnings: list[str] = []
        self.asked = 0
        self.has_terminal = True
        self.says_yes = True
        self.before_answer: Callable[[], None] = lambda: None
        self._world = world
        self._path = folder / "mm2.properties"
        self._meets = meets

    async def run(self, settings: dict[str, str], *arguments: str) -> int:
        self.out, self.warnings = "", []
        self._path.write_text("".join(f"{key} = {value}\n" for key, value in {**ADDRESSES, **settings}.items()))
        options = parse_arguments([str(self._path), *arguments])
        file = read_settings_file(options.file, options.clusters)
        flows = [*file.configuration().flows, *file.flows_switched_off()]
        return await apply(
            options,
            file,
            flows,
            self._write,
            self.warnings.append,
            connect=self._connect,
            clock=self._world.clock,
            confirm=self._confirm if self.has_terminal else None,
        )

    def _connect(self, settings: FlowSettings, rng: random.Random) -> Connected:
        return cast("Connected", Link(self._world.target, self._meets))

    def _write(self, text: str) -> None:
        self.out += text

    def _confirm(self, question: str) -> bool:
        self.asked += 1
        self.before_answer()
        return self.says_yes


def writes(world: World) -> int:
    return len(world.target.records(TOPIC, 0)) if TOPIC in world.target.topics else 0


async def test_the_last_change_can_be_undone_and_redone(tmp_path: Path) -> None:
    world = World(2)
    worker, shell = FlowWorker(world, "w1", {"topics": "one"}), Shell(world, tmp_path)
    await worker.start()
    assert await shell.run({"topics": "x"}, "--previous") == EXIT_DONE
    assert shell.out.startswith("A->B: there is no configuration before this one (version 1, by file")
    await shell.run({"topics": "two"})
    assert await shell.run({"topics": "not looked at"}, "--previous") == EXIT_DONE
    assert "  topics: 'two' -> 'one'\n" in shell.out
    stored = await stored_in(world)
    assert stored is not None
    assert (stored.version, stored.by, stored.properties["topics"]) == (3, "apply", "one")
    await shell.run({}, "--previous")
    await asyncio.sleep(2)
    assert worker.settings is not None and worker.settings.topic_filter.should_replicate("two")
    assert [version for version, _, _ in worker.heard] == [4], "an undone change is not reported"


async def test_settings_that_mirrormaker_2_stored_can_be_restored_without_their_secrets(tmp_path: Path) -> None:
    world = World(3)
    await ensure_configs_topic(world.target, TOPIC, replication_factor=1, rng=random.Random(1))
    await put_as_mm2(world, BY_MM2 | {"source.cluster.sasl.jaas.config": "hunter2"})
    shell = Shell(world, tmp_path)
    assert await shell.run({"topics": "one"}) == EXIT_DONE
    assert shell.out.startswith("A->B (written by MirrorMaker 2):\n  topics: 'java' -> 'one'\n")
    await shell.run({}, "--previous")
    stored = await stored_in(world)
    assert stored is not None and stored.properties == {"enabled": "true", "topics": "java"}
    ours = b"".join(record.value or b"" for record in world.target.records(TOPIC, 0)[1:])
    assert b"hunter2" not in ours and b"a:1" not in ours
    assert "hunter2" not in shell.out


@pytest.mark.parametrize("way", ["--dry-run", "no"])
async def test_without_confirmation_nothing_is_stored(tmp_path: Path, way: str) -> None:
    world = World(4)
    shell = Shell(world, tmp_path)
    shell.says_yes = False
    code = EXIT_CHANGES if way == "--dry-run" else EXIT_DONE
    assert await shell.run({"topics": "one"}, *([way] if way == "--dry-run" else [])) == code
    assert shell.out.startswith("A->B is new:\n  enabled = 'true'\n  topics = 'one'\n")
    assert shell.asked == (0 if way == "--dry-run" else 1)
    assert TOPIC not in world.target.topics
    assert await shell.run({"topics": "one"}, "--yes") == EXIT_DONE
    assert writes(world) == 5


async def test_without_a_terminal_nothing_is_stored_unless_yes_is_said(tmp_path: Path) -> None:
    """The standard input of a script is no terminal: that is no answer to the question whether to store."""
    world = World(4)
    shell = Shell(world, tmp_path)
    shell.has_terminal = False
    assert await shell.run({"topics": "one"}) == EXIT_USAGE
    shown, said = shell.out[: shell.out.rindex("Nothing")], shell.out[shell.out.rindex("Nothing") :]
    assert shown == "A->B is new:\n  enabled = 'true'\n  topics = 'one'\n"
    assert said == "Nothing was stored: without a terminal --yes is needed.\n"
    assert TOPIC not in world.target.topics
    assert await shell.run({"topics": "one"}, "--yes") == EXIT_DONE
    before = writes(world)
    assert await shell.run({"topics": "one"}) == EXIT_DONE, "there is nothing to store"
    assert await shell.run({"topics": "two"}, "--previous") == EXIT_DONE, "there is nothing to store"
    assert writes(world) == before and shell.asked == 0


async def test_a_dry_run_tells_by_its_exit_code_whether_something_would_change(tmp_path: Path) -> None:
    answers = [True]

    def meets(_: Request) -> None:
        if not answers[0]:
            raise BrokerUnreachable("b:1", "connection refused")

    shell = Shell(World(4), tmp_path, meets=meets)
    assert await shell.run({"topics": "one"}, "--dry-run") == EXIT_CHANGES
    assert await shell.run({"topics": "one"}, "--yes") == EXIT_DONE
    assert await shell.run({"topics": " one"}, "--dry-run") == EXIT_DONE
    assert await shell.run({"topics": "two"}, "--dry-run") == EXIT_CHANGES
    answers[0] = False
    assert await shell.run({"topics": "two"}, "--dry-run") == EXIT_FAILED


async def test_the_user_the_host_and_the_reason_are_stored_and_shown(tmp_path: Path) -> None:
    world = World(4)
    shell = Shell(world, tmp_path)
    assert await shell.run({"topics": "one"}, "--yes", "--reason", " raise topics for team x ") == EXIT_DONE
    stored = await stored_in(world)
    assert stored is not None
    assert stored.author == Author(login_name(), host_name(), "raise topics for team x")
    assert await shell.run({"topics": "two"}, "--dry-run") == EXIT_CHANGES
    assert shell.out.startswith(f"A->B (version 1, by {ME} (mm2py apply): raise topics for team x, 20")
    assert await shell.run({"topics": "two"}, "--yes") == EXIT_DONE
    stored = await stored_in(world)
    assert stored is not None and stored.author == Author(login_name(), host_name(), "")


async def test_a_reason_that_may_not_be_shown_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    shell = Shell(World(4), tmp_path)
    for bad, why in (("x" * 201, "201 characters"), ("a\nb", "control"), ("password=hunter2", "credential")):
        with pytest.raises(ConfigError, match=why) as refused:
            await shell.run({}, "--yes", "--reason", bad)
        assert "hunter2" not in str(refused.value)


async def test_a_flow_that_the_file_disables_is_switched_off(tmp_path: Path) -> None:
    world = World(5)
    worker, shell = FlowWorker(world, "w1", {"topics": "one"}), Shell(world, tmp_path)
    assert await shell.run({"A->B.enabled": "false"}) == EXIT_DONE
    assert shell.out == "A->B: it is switched off, and no worker runs it.\n"
    await worker.start()
    assert await shell.run({"A->B.enabled": "false", "topics": "one"}) == EXIT_DONE
    assert "  enabled: 'true' -> 'false'\n  The flow is drained" in shell.out
    await asyncio.sleep(2)
    assert worker.settings is None
    assert await shell.run({"A->B.enabled": "false"}, "--previous") == EXIT_DONE
    await asyncio.sleep(2)
    assert worker.settings is not None


async def test_a_change_that_restarts_the_flow_is_announced_as_such(tmp_path: Path) -> None:
    world = World(6)
    worker, shell = FlowWorker(world, "w1", {}), Shell(world, tmp_path)
    await worker.start()
    await shell.run({"replication.policy.separator": "_"}, "--dry-run")
    assert "  The flow is drained and restarted for this" in shell.out
    await shell.run({"topics": "x"}, "--dry-run")
    assert "restarted for this" not in shell.out


async def test_a_change_between_the_question_and_the_answer_is_not_overwritten(tmp_path: Path) -> None:
    world = World(7)
    worker, other = FlowWorker(world, "w1", {"topics": "one"}), Shell(world, tmp_path / "other")
    (tmp_path / "other").mkdir()
    await worker.start()
    tasks: list[asyncio.Task[int]] = []

    def meets(request: Request) -> None:
        if not isinstance(request, ProduceRequest) and shell.asked and not tasks:
            tasks.append(asyncio.ensure_future(other.run({"topics": "two"})))

    shell = Shell(world, tmp_path, meets=meets)
    assert EXIT_FAILED in {await shell.run({"topics": "three"}), *[await task for task in tasks]}
    stored = await stored_in(world)
    assert stored is not None
    assert stored.properties["topics"] == ("three" if other.warnings else "two")
    (warning,) = [*shell.warnings, *other.warnings]
    assert warning.startswith("A->B: Another writer has changed it meanwhile.")


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--previous"]])
async def test_nothing_is_stored_while_a_mirrormaker_2_runs_the_flow(tmp_path: Path, more: list[str]) -> None:
    """MirrorMaker 2 reads the same topic: it would follow what is stored, or overwrite it."""
    world = World(9)
    await ensure_configs_topic(world.target, TOPIC, replication_factor=1, rng=random.Random(1))
    await put_as_mm2(world, BY_MM2)
    shell = Shell(world, tmp_path)
    assert await shell.run({"topics": "one"}) == EXIT_DONE  # so that there is a previous one
    world.target.groups.activate("A-mm2", protocol_type="connect")
    before = writes(world)
    assert await shell.run({"topics": "two"}, *more) == EXIT_FAILED
    assert "MirrorMaker 2 runs it, group A-mm2 on B has 1 member(s). Stop MirrorMaker 2" in shell.warnings[0]
    assert writes(world) == before
    world.target.groups.deactivate("A-mm2")
    assert await shell.run({"topics": "two"}, *more) == (EXIT_CHANGES if more == ["--dry-run"] else EXIT_DONE)


async def test_a_mirrormaker_2_that_starts_while_the_operator_is_asked_is_noticed(tmp_path: Path) -> None:
    world = World(10)
    shell = Shell(world, tmp_path)
    shell.before_answer = lambda: world.target.groups.activate("A-mm2", protocol_type="connect")
    assert await shell.run({"topics": "one"}) == EXIT_FAILED
    assert shell.asked == 1 and "MirrorMaker 2 runs it" in shell.warnings[0]
    assert writes(world) == 0


async def test_without_the_right_to_look_for_a_mirrormaker_2_it_is_said_and_stored(tmp_path: Path) -> None:
    world = World(11)
    world.target.groups.denied.add("A-mm2")
    shell = Shell(world, tmp_path)
    assert await shell.run({"topics": "one"}) == EXIT_DONE
    (warning,) = shell.warnings
    assert "Grant DESCRIBE on group A-mm2, or make sure no MM2 runs." in warning
    assert writes(world) > 0


async def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    def meets(_: Request) -> None:
        raise BrokerUnreachable("b:1", "connection refused")

    shell = Shell(World(8), tmp_path, meets=meets)
    assert await shell.run({}) == EXIT_FAILED
    (warning,) = shell.warnings
    assert warning.startswith("A->B: B does not answer: reading mm2-configs.A.internal took more than 30 s.")


async def test_wrong_files_and_arguments_are_refused(tmp_path: Path) -> None:
    shell = Shell(World(9), tmp_path)
    with pytest.raises(ConfigError, match="line 6: topics"):
        await shell.run({"topics": "("})
    with pytest.raises(ConfigError, match=r"Try mm2py apply --help\."):
        await shell.run({}, "--yes", "--dry-run")
