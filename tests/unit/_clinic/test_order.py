"""Which finding is told first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock._clinic.causes import CODES, LEADS_TO
from penstock._clinic.finding import Finding, Prescription, Proof
from penstock._clinic.order import leads_to, order

VERIFIED, REFUTED = Proof("verified", "x"), Proof("refuted", "x")


def finding(cause, severity="error", **fields):
    return Finding(CODES[cause], cause, severity, cause, Prescription("change", "expect"), **fields)


def causes(*layers):
    return [each.cause for each in order(layers)]


def test_errors_come_before_warnings_and_warnings_before_infos():
    found = [finding("rng-repeated", "info"), finding("too-few-workers", "warning"), finding("bad-sample")]
    assert causes(found) == ["bad-sample", "too-few-workers", "rng-repeated"]


def test_what_stopped_the_program_comes_before_what_it_only_spoiled():
    found = [finding("rng-repeated", proof=VERIFIED), finding("shm-exhausted", stopped_at_s=4.0)]
    assert causes(found) == ["shm-exhausted", "rng-repeated"]


def test_of_two_that_stopped_it_the_verified_one_comes_first():
    found = [
        finding("blocking-io", stopped_at_s=4.0),
        finding("thread-pool-after-fork", stopped_at_s=4.1, proof=VERIFIED),
    ]
    assert causes(found) == ["thread-pool-after-fork", "blocking-io"]


def test_of_two_verified_ones_the_earlier_comes_first():
    found = [
        finding("shm-exhausted", stopped_at_s=9.0, proof=VERIFIED),
        finding("bad-sample", stopped_at_s=4.0, proof=VERIFIED),
    ]
    assert causes(found) == ["bad-sample", "shm-exhausted"]


def test_a_suspicion_comes_after_what_was_seen_even_if_it_claims_to_have_stopped_the_program():
    found = [
        finding("cuda-before-fork", stopped_at_s=1.0, confidence="suspected"),
        finding("iterable-not-sharded"),
    ]
    assert causes(found) == ["iterable-not-sharded", "cuda-before-fork"]


def test_a_refuted_finding_comes_after_one_that_was_not_tried():
    assert causes([finding("bad-sample", proof=REFUTED), finding("wrong-length")]) == [
        "wrong-length",
        "bad-sample",
    ]


def test_a_change_that_gained_a_little_comes_before_what_no_change_helps():
    nothing = finding("transform-bound", "info")
    little = Proof("refuted", "x", after={"gain": 1.26})
    none = Proof("refuted", "x", after={"gain": 1.05})
    assert causes([nothing, finding("workers-restarted", "info", proof=little)])[0] == "workers-restarted"
    assert causes([nothing, finding("workers-restarted", "info", proof=none)])[0] == "transform-bound"


def test_a_root_comes_right_before_its_symptom():
    found = [
        finding("worker-out-of-memory", stopped_at_s=3.0, loader="a"),
        finding("rng-repeated", proof=VERIFIED),
        finding("copy-on-write-growth", loader="a"),
    ]
    assert causes(found) == ["copy-on-write-growth", "worker-out-of-memory", "rng-repeated"]


def test_a_root_in_another_loader_explains_nothing():
    found = [
        finding("worker-out-of-memory", stopped_at_s=3.0, loader="a"),
        finding("copy-on-write-growth", loader="b"),
    ]
    assert causes(found) == ["worker-out-of-memory", "copy-on-write-growth"]


def test_an_info_or_a_refuted_finding_explains_no_error():
    symptom = finding("worker-out-of-memory", stopped_at_s=3.0)
    assert not leads_to(finding("copy-on-write-growth", "info"), symptom)
    assert not leads_to(finding("copy-on-write-growth", proof=REFUTED), symptom)


def test_a_deeper_layer_comes_after_the_one_that_hid_it():
    first, second = finding("bad-sample", stopped_at_s=9.0), finding("shm-exhausted", stopped_at_s=2.0)
    assert causes([first], [second]) == ["bad-sample", "shm-exhausted"]


FINDINGS = st.builds(
    finding,
    st.sampled_from(sorted(CODES)),
    st.sampled_from(["error", "warning", "info"]),
    loader=st.sampled_from([None, "a", "b"]),
    confidence=st.sampled_from(["proved", "observed", "suspected"]),
    stopped_at_s=st.one_of(st.none(), st.floats(0, 100)),
    proof=st.sampled_from([Proof(), VERIFIED, REFUTED]),
)


@given(st.lists(st.lists(FINDINGS, max_size=8), max_size=3))
def test_each_finding_is_told_once_and_no_symptom_before_its_root(layers):
    told = order(layers)
    assert sorted(map(id, told)) == sorted(id(each) for layer in layers for each in layer)
    for place, symptom in enumerate(told):
        assert not any(leads_to(root, symptom) for root in told[place + 1 :])


@given(st.lists(FINDINGS, max_size=8))
def test_an_info_never_comes_before_an_alarm(found):
    severities = [each.severity == "info" for each in order([found])]
    assert severities == sorted(severities)


def test_what_leads_to_what_has_no_circle():
    def below(cause):
        return {cause}.union(*(below(each) for each in LEADS_TO.get(cause, ())))

    assert all(cause not in below(symptom) for cause, symptoms in LEADS_TO.items() for symptom in symptoms)


def test_of_two_silent_errors_the_graver_comes_first():
    found = [finding("rng-repeated", proof=VERIFIED), finding("stop-iteration-truncates", proof=VERIFIED)]
    assert causes(found) == ["stop-iteration-truncates", "rng-repeated"]


def test_a_gain_that_was_looked_for_in_vain_explains_nothing():
    tried = Proof("not-tested", "one thread: too few rounds could be timed")
    found = [
        finding("thread-oversubscription", "info", proof=tried, loader="a"),
        finding("transform-bound", "info", loader="a"),
    ]
    assert causes(found) == ["transform-bound", "thread-oversubscription"]
    untried = [finding("thread-oversubscription", "info", loader="a"), found[1]]
    assert causes(untried) == ["thread-oversubscription", "transform-bound"]
