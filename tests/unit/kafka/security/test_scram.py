"""SCRAM by RFC 7677's vector, against a server of the test's own, and against servers that cheat (S15)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.kafka.security.sasl import HASHES, ITERATIONS_LEAST, ITERATIONS_MOST, SaslRefused, Scram
from mm2py.secret import Secret

NONCE = "rOprNGfwEbeRWgbNEkqO"
PASSWORD = Secret("pencil-canary")


def test_the_vector_of_rfc_7677() -> None:
    scram = Scram("SCRAM-SHA-256", "user", Secret("pencil"), nonce=NONCE)
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert scram.answer(server_first) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert scram.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


class Server:
    """The other side by RFC 5802, written apart from ours."""

    def __init__(self, mechanism: str, password: str, *, iterations: int = ITERATIONS_LEAST) -> None:
        self.hash = HASHES[mechanism]
        self.salt = os.urandom(16)
        self.iterations = iterations
        self.salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), self.salt, iterations)
        self.client_first = ""
        self.server_first = ""

    def challenge(self, client_first: bytes) -> bytes:
        self.client_first = client_first.decode().removeprefix("n,,")
        nonce = self.client_first.partition("r=")[2]
        self.server_first = f"r={nonce}more,s={base64.b64encode(self.salt).decode()},i={self.iterations}"
        return self.server_first.encode()

    def mac(self, key: bytes, text: str) -> bytes:
        return hmac.new(key, text.encode(), self.hash).digest()

    def verdict(self, client_final: bytes) -> bytes | None:
        text, _, proof = client_final.decode().rpartition(",p=")
        everything = f"{self.client_first},{self.server_first},{text}"
        stored = hashlib.new(self.hash, self.mac(self.salted, "Client Key")).digest()
        signature = self.mac(stored, everything)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.hash, key).digest() != stored:
            return None
        return b"v=" + base64.b64encode(self.mac(self.mac(self.salted, "Server Key"), everything))


@given(
    mechanism=st.sampled_from(sorted(HASHES)),
    username=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20),
    password=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
)
def test_both_sides_agree_for_every_name_and_password(mechanism: str, username: str, password: str) -> None:
    server = Server(mechanism, password)
    scram = Scram(mechanism, username, Secret(password), nonce=NONCE)
    proof = scram.answer(server.challenge(scram.first()))
    assert server.client_first.split(",r=")[0] == "n=" + username.replace("=", "=3D").replace(",", "=2C")
    assert proof is not None
    verdict = server.verdict(proof)
    assert verdict is not None
    assert scram.answer(verdict) is None


SALT = "c2FsdHNhbHQ="


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (f"r={NONCE}x,s={SALT},i=1", "asks for 1 iterations"),
        (f"r={NONCE}x,s={SALT},i=4095", "asks for 4,095 iterations"),
        (f"r={NONCE}x,s={SALT},i=1000000000", "asks for 1,000,000,000 iterations"),
        (f"r={NONCE}x,s={SALT},i={ITERATIONS_MOST + 1}", "asks for 1,000,001 iterations"),
        (f"r={NONCE}x,s={SALT},i=0", "not one of SCRAM"),
        (f"r={NONCE}x,s={SALT},i=-4096", "not one of SCRAM"),
        (f"r={NONCE}x,s={SALT},i=99999999999999999999999", "not one of SCRAM"),
        (f"r={NONCE}x,s={SALT},i=4096x", "not one of SCRAM"),
        (f"r={NONCE},s={SALT},i=4096", "nonce does not continue ours"),
        (f"r={NONCE[:-1]},s={SALT},i=4096", "nonce does not continue ours"),
        (f"r=x{NONCE},s={SALT},i=4096", "nonce does not continue ours"),
        (f"r=,s={SALT},i=4096", "not one of SCRAM"),
        (f"r={NONCE}x,s=,i=4096", "not one of SCRAM"),
        (f"r={NONCE}x,s=!,i=4096", "not one of SCRAM"),
        (f"r={NONCE}x,i=4096,s={SALT}", "not one of SCRAM"),
        (f"m=ext,r={NONCE}x,s={SALT},i=4096", "not one of SCRAM"),
        ("e=unknown-user", "it refuses the user (unknown-user)"),
        ("", "not one of SCRAM"),
        ("\xff", "not one of SCRAM"),
        (f"r={NONCE}{'x' * 5000},s={SALT},i=4096", "not one of SCRAM"),
    ],
)
def test_a_server_that_cheats_in_its_first_message_learns_nothing(challenge: str, why: str) -> None:
    scram = Scram("SCRAM-SHA-256", "anna", PASSWORD, nonce=NONCE)
    began_s = time.process_time()
    with pytest.raises(SaslRefused) as caught:
        scram.answer(challenge.encode("latin-1") if challenge == "\xff" else challenge.encode())
    assert time.process_time() - began_s < 0.5, "it computed before it checked"
    if challenge != "\xff":
        assert why in str(caught.value)
    assert "canary" not in f"{caught.value} {caught.value.remedy}"


@pytest.mark.parametrize(
    "final",
    [b"v=AAAA", b"v=", b"", b"x", b"v=" + base64.b64encode(b"\0" * 32), b"\xff", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5n"],
)
def test_a_server_that_does_not_know_the_password_is_found_out(final: bytes) -> None:
    scram = Scram("SCRAM-SHA-256", "anna", PASSWORD, nonce=NONCE)
    assert scram.answer(Server("SCRAM-SHA-256", "other").challenge(scram.first())) is not None
    with pytest.raises(SaslRefused):
        scram.answer(final)


def test_a_refused_proof_is_told_with_the_servers_reason() -> None:
    scram = Scram("SCRAM-SHA-256", "anna", PASSWORD, nonce=NONCE)
    scram.answer(Server("SCRAM-SHA-256", "other").challenge(scram.first()))
    with pytest.raises(SaslRefused, match="invalid-proof"):
        scram.answer(b"e=invalid-proof")


def test_the_most_iterations_that_are_taken_take_a_second_or_so() -> None:
    scram = Scram("SCRAM-SHA-256", "anna", PASSWORD, nonce=NONCE)
    began_s = time.process_time()
    assert scram.answer(f"r={NONCE}x,s={SALT},i={ITERATIONS_MOST}".encode()) is not None
    assert time.process_time() - began_s < 20


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(challenge: bytes) -> None:
    scram = Scram("SCRAM-SHA-256", "anna", PASSWORD, nonce=NONCE)
    with pytest.raises(SaslRefused):
        scram.answer(challenge)
