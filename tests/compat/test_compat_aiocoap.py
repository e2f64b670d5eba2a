"""The private names of aiocoap exist and are used as `edge.compat.aiocoap` and `aiocoap_oscore` expect."""

from aiocoap import Code, Context, Message, messagemanager, oscore
from aiocoap.messagemanager import MessageManager
from aiocoap.numbers.types import Type
from aiocoap.tokenmanager import TokenManager
from aiocoap.transports import udp6

from edge.compat import aiocoap as compat
from edge.compat import aiocoap_oscore
from tests.support.private_names import check_attributes, check_parameters, check_used

MANAGER = {
    "_remove_exchange": ["message"],
    "_deduplicate_message": ["message"],
    "_store_response_for_duplicates": ["message"],
    "_send_via_transport": ["message"],
    "_next_message_id": [],
}


def test_the_manager_has_and_calls_the_overridden_methods():
    check_parameters("aiocoap", compat, MessageManager, {**MANAGER, "dispatch_error": ["error", "remote"]})
    check_used("aiocoap", compat, messagemanager, *(f"self.{name}(" for name in MANAGER))


async def test_the_manager_has_a_backlog_for_each_client():
    manager = compat.HookedManager(TokenManager(Context()))
    check_attributes("aiocoap", compat, manager, "_backlogs")
    assert not manager.busy("somebody")
    manager._backlogs["somebody"] = []
    assert manager.busy("somebody")


def test_the_socket_has_and_calls_the_overridden_methods():
    methods = {
        "send": ["message"],
        "error_received": ["exc"],
        "datagram_msg_received": ["data", "ancdata", "flags", "address"],
    }
    check_parameters("aiocoap", compat, udp6.MessageInterfaceUDP6, methods)
    check_used("aiocoap", compat, udp6.MessageInterfaceUDP6, "self._ctx.dispatch_error(")


def test_a_ping_is_an_empty_confirmable_message():
    message = compat.ping("somebody")
    assert (message.mtype, message.code, message.remote) == (Type.CON, Code.EMPTY, "somebody")


def test_a_block_is_cut_from_a_response():
    check_parameters("aiocoap", compat, Message, {"_extract_block": ["number", "size_exp", "max_bert_size"]})
    block = compat.block_of(Message(code=Code.CONTENT, payload=b"x" * 40), 1, 0, 1024)
    assert (block.payload, block.opt.block2.more) == (b"x" * 16, True)


def test_a_security_context_calls_the_overridden_methods():
    methods = {"_post_decrypt_checks": ["aad", "plaintext", "protected_message", "request_id"]}
    check_parameters("aiocoap", aiocoap_oscore, oscore.CanUnprotect, methods)
    check_parameters("aiocoap", aiocoap_oscore, oscore.CanProtect, {"post_seqnoincrease": []})
    check_used("aiocoap", aiocoap_oscore, oscore.CanUnprotect.unprotect, "self._post_decrypt_checks(")
    check_used("aiocoap", aiocoap_oscore, oscore.CanProtect.new_sequence_number, "self.post_seqnoincrease()")
