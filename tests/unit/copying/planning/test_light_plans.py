"""Plans on the event loop decode little; a plan that must decode much says so, and is made again beside the loop."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.compiled_core import CORE, Core
from mm2py.copying.planning import rebuild
from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import MERGE_ALL, PASS_ALL, MergeRule, Plan, TargetRules
from mm2py.records.compression import LIGHT_WORK_BYTES, RECORDS_MAX
from tests.fakes.broker.record_batch import Record, build_batch, parse_batch, rewrite
from tests.fakes.hostile_batches import batch_of_one_byte_members, batch_of_tiny_records, log_append_time, tiny_records
from tests.unit.copying.planning.test_planner import RULES, Log, logs

RULES_20 = TargetRules(1 << 20)
CORES = [None] if CORE is None else [None, CORE]


def planned(*batches: bytes, light: bool, merging: MergeRule | None = None, core: Core | None = CORE) -> Plan:
    placed, offset = [], 0
    for batch in batches:
        placed.append(rewrite(parse_batch(batch), base_offset=offset).raw)
        offset = parse_batch(placed[-1]).last_offset + 1
    records = memoryview(bytearray(b"".join(placed)))
    return plan(
        records,
        wanted_offset=0,
        read_committed=False,
        aborted=(),
        rules=RULES_20,
        merging=PASS_ALL if merging is None else merging,
        light=light,
        core=core,
    )


HEAVY = {
    "much of little": [log_append_time(build_batch([Record(bytes(20_000_000))], codec="zstd"))],
    "many records": [log_append_time(batch_of_tiny_records(100_000))],
    "much": [log_append_time(build_batch([Record(b"x" * 300_000)]))] * 5,
    "members": [log_append_time(batch_of_one_byte_members(tiny_records(10_000), 10_000))],
}


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name", HEAVY)
def test_a_light_plan_decodes_no_more_than_one_step_of_the_loop_may(name: str, core: Core | None) -> None:
    tracemalloc.start()
    try:
        light = planned(*HEAVY[name], light=True, core=core)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert light == Plan(next_offset=0, is_heavy=True)
    assert peak < 4 * LIGHT_WORK_BYTES + 2 * sum(map(len, HEAVY[name]))
    whole = planned(*HEAVY[name], light=False, core=core)
    assert whole.fault is None
    assert whole.next_offset > 0


def test_what_passes_is_light_whatever_it_holds() -> None:
    bomb = build_batch([Record(bytes(100_000_000))], codec="zstd")
    light = planned(bomb, batch_of_tiny_records(150_000), light=True)
    assert [step.next_offset for step in light.steps] == [1, 150_001]


def test_a_small_rebuilt_batch_is_planned_on_the_loop() -> None:
    light = planned(log_append_time(build_batch([Record(b"x" * 1000)] * 100, codec="zstd")), light=True)
    assert (light.is_heavy, light.next_offset) == (False, 100)


def test_merging_much_is_not_done_on_the_loop_where_python_does_it() -> None:
    small = build_batch([Record(b"")] * 200)
    assert planned(*[small] * 400, light=True, merging=MERGE_ALL, core=None).is_heavy
    packed = build_batch([Record(bytes(50_000))], codec="zstd")
    assert planned(*[packed] * 100, light=True, merging=MERGE_ALL).is_heavy


def test_more_records_than_a_batch_may_have_are_a_fault_of_the_partition() -> None:
    batch = log_append_time(batch_of_tiny_records(RECORDS_MAX + 1))
    assert planned(batch, light=True).is_heavy
    fault = planned(build_batch([Record(b"before")]), batch, light=False).fault
    assert fault is not None
    assert (fault.kind, fault.offset, fault.next_offset) == ("over budget", 1, RECORDS_MAX + 2)
    assert not fault.is_damage


@given(logs(), RULES, st.booleans(), st.sampled_from([50, 500, 5_000]))
def test_a_light_plan_is_the_same_plan_or_none(log: Log, rules: TargetRules, read_committed: bool, most: int) -> None:
    records = memoryview(bytearray(b"".join(batch for _, batch in log.batches)))
    arguments = {
        "wanted_offset": log.batches[0][0],
        "read_committed": read_committed,
        "aborted": log.aborted(),
        "rules": rules,
        "merging": MERGE_ALL,
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rebuild, "LIGHT_WORK_BYTES", most)
        light = plan(records, **arguments, light=True)  # type: ignore[arg-type]  # a dict of arguments
    whole = plan(records, **arguments)  # type: ignore[arg-type]
    assert light.is_heavy or light == whole
