"""docs/doors.md: each row of its table has a test that proves it, or a sentence why there is none.

A proof is `file::name`, below `tests`. A name in a script of `tests/peers` is a scenario of an official client, which
`tests/peers/test_peers.py` runs. This module fails when a door, an aspect or a proof is missing.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from dragoman.cli.topics import load_table

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "doors.md").read_text(encoding="utf-8")

ASPECTS = (
    "Message",
    "Stream",
    "Question and answer",
    "Cancel",
    "File",
    "Cut and continuation",
    "Other callers",
    "Limits",
)

Proofs = tuple[str, ...]

APART = "systems/test_apart.py::test_what_is_annas_is_not_there_for_ben"
REFUSED = (
    "systems/test_limits_in_dialects.py::test_one_too_many",
    "systems/test_limits_in_dialects.py::test_a_stream_too_many",
)
RUNNING = "systems/test_matrix.py::test_a_task_that_runs_is_read_followed_and_canceled"
MOUNTED = "peers/test_mounted.py::test_the_official_client_finds_a_mounted_application_as_any_server"
ASKED = "systems/test_conversations.py::test_an_agent_asks_and_is_answered"

PROOFS: dict[str, tuple[Proofs, ...]] = {
    "A2A 1.0": (
        ("spec/test_operations.py::test_a_message_is_answered_with_the_task_it_made", "peers/sdk1.py::send_blocking"),
        ("spec/test_operations.py::test_a_message_is_answered_with_a_stream", "peers/sdk1.py::stream"),
        (ASKED, "peers/sdk1.py::input_required"),
        ("spec/test_operations.py::test_a_task_is_canceled", "peers/sdk1.py::cancel"),
        (
            "systems/test_files.py::test_1_0_has_url_media_type_and_filename_and_nothing_else",
            "peers/sdk1.py::file_round_trip",
        ),
        (
            "spec/test_streams.py::test_a_stream_is_resumed_without_gap_or_repeat_from_any_event",
            "spec/test_streams.py::test_a_stream_is_resumed_after_a_restart_of_the_server",
            "systems/test_any_replica.py::test_a_run_is_followed_on_another_replica_and_resumed_on_a_third",
            "drills/test_one_server.py::test_a_kill_of_the_only_server_takes_nothing_back",
            "peers/sdk1.py::resubscribe",
        ),
        (APART, "systems/test_apart_at_random.py::test_neither_ever_sees_the_other"),
        REFUSED,
    ),
    "A2A 0.3": (
        ("spec/test_operations.py::test_a_message_is_answered_with_the_task_it_made", "peers/sdk03.py::send_blocking"),
        ("spec/test_operations.py::test_a_message_is_answered_with_a_stream", "peers/sdk03.py::stream"),
        (ASKED, "peers/sdk03.py::input_required"),
        ("spec/test_operations.py::test_a_task_is_canceled", "peers/sdk03.py::cancel"),
        ("systems/test_files.py::test_0_3_has_a_file_with_a_uri", "peers/sdk03.py::file_round_trip"),
        (
            "spec/test_streams.py::test_a_stream_is_resumed_without_gap_or_repeat_from_any_event",
            "peers/sdk03.py::resubscribe",
        ),
        (APART,),
        REFUSED,
    ),
    "Dialects": (
        (
            "systems/test_beeos.py::test_the_examples_of_send_and_get",
            "systems/test_kaos.py::test_the_examples_of_send_get_and_cancel",
            "systems/test_evoai.py::test_a_send_is_answered_with_the_task_once",
            "systems/test_protoagent.py::test_the_example_of_send",
        ),
        (
            "systems/test_beeos.py::test_a_stream_has_bare_frames_that_end_with_the_terminal_status",
            "systems/test_evoai.py::test_the_example_of_a_stream",
            "systems/test_protoagent.py::test_every_frame_of_a_stream_has_its_kind",
        ),
        (ASKED, "systems/test_conversations.py::test_a_stream_ends_where_the_agent_asks"),
        (RUNNING,),
        ("systems/test_files.py::test_a_large_file_is_a_link_in_every_dialect",),
        (
            "systems/test_beeos.py::test_a_stream_is_taken_up_again_by_offset",
            "systems/test_evoai.py::test_a_stream_whose_reader_leaves_goes_on",
            "systems/test_protoagent.py::test_a_reader_that_comes_back_after_a_restart_misses_nothing",
        ),
        (APART,),
        REFUSED,
    ),
    "gRPC": (
        ("bindings/grpc/test_service.py::test_a_task_is_the_same_over_http", "peers/sdk1.py::send_blocking"),
        ("bindings/grpc/test_service.py::test_items_have_ids_for_callers_who_want_them", "peers/sdk1.py::stream"),
        ("peers/sdk1.py::input_required", "peers/sdk03.py::input_required"),
        (RUNNING, "peers/sdk1.py::cancel"),
        ("peers/sdk1.py::file_round_trip", "peers/sdk03.py::file_round_trip"),
        (
            "bindings/grpc/test_service.py::test_a_subscription_resumes_with_exactly_what_follows",
            "systems/test_any_replica.py::test_a_run_is_followed_on_another_replica_over_grpc",
        ),
        ("bindings/grpc/test_apart.py::test_a_task_of_somebody_else_is_not_found",),
        (
            "bindings/grpc/test_apart.py::test_a_request_too_many_is_refused_with_the_time_to_come_back",
            "bindings/grpc/test_limits.py::test_streams_of_callers_that_left_are_counted_no_more",
        ),
    ),
    "Chat completions": (
        (
            "bindings/test_openai.py::test_a_completion_has_the_text_of_the_artifacts_and_the_tokens",
            "peers/openai_client.py::completion",
        ),
        (
            "bindings/test_openai.py::test_a_stream_begins_with_the_role_and_ends_with_done",
            "peers/openai_client.py::stream",
        ),
        (
            "bindings/test_openai_questions.py"
            "::test_an_interface_that_repeats_the_conversation_goes_on_with_the_task_that_asked",
            "peers/openai_client.py::question",
        ),
        (),
        ("bindings/test_openai.py::test_images_files_and_audio_reach_the_agent_as_parts",),
        (
            "bindings/test_openai.py::test_a_call_that_comes_again_under_its_key_is_the_same_task",
            "bindings/test_openai_questions.py::test_a_question_is_answered_after_a_restart_and_at_another_server",
        ),
        (
            "systems/test_apart.py::test_the_same_in_chat_completions",
            "bindings/test_openai_questions.py::test_no_answer_lands_in_the_task_of_somebody_else",
        ),
        REFUSED,
    ),
    "Responses": (
        ("bindings/test_responses.py::test_a_response_is_a_task_that_is_read_again",),
        ("bindings/test_responses.py::test_a_stream_adds_up_to_its_response_and_is_the_same_again",),
        (
            "bindings/test_responses.py::test_a_question_is_answered_by_the_response_that_asked",
            "bindings/test_responses.py::test_a_question_is_answered_once",
        ),
        ("bindings/test_responses.py::test_a_response_in_the_background_is_followed_and_canceled",),
        ("bindings/test_responses.py::test_files_go_in_and_images_come_out",),
        ("bindings/test_responses.py::test_a_cut_stream_changes_nothing_about_the_task",),
        ("bindings/test_responses.py::test_a_response_is_its_owners",),
        ("bindings/test_responses.py::test_limits_hold",),
    ),
    "MCP with sessions": (
        ("bindings/test_mcp.py::test_a_result_says_how_to_go_on", "peers/mcp_client.py::call"),
        ("bindings/test_mcp.py::test_progress_is_told_and_grows", "peers/mcp_client.py::progress"),
        ("bindings/test_mcp.py::test_the_user_is_asked_with_a_form", "peers/mcp_client.py::elicitation"),
        ("bindings/test_mcp.py::test_canceling_the_request_cancels_the_task", "peers/mcp_client.py::cancel"),
        (
            "bindings/test_mcp.py::test_text_data_and_files_reach_the_agent",
            "bindings/test_mcp.py::test_files_come_as_what_they_are",
            "peers/mcp_client.py::files",
        ),
        (
            "bindings/test_mcp.py::test_leaving_does_not_cancel_and_the_task_can_be_waited_for",
            "systems/test_shared_limits.py::test_a_form_is_answered_on_another_server",
            "peers/mcp_client.py::leave",
        ),
        ("bindings/test_mcp.py::test_a_strangers_task_is_none",),
        ("bindings/test_mcp.py::test_what_is_over_a_limit_is_told_to_the_model",),
    ),
    "MCP 2026-07-28": (
        ("bindings/test_mcp_stateless.py::test_a_call_needs_nothing_before_it",),
        ("bindings/test_mcp_stateless.py::test_progress_and_log_messages_come_when_the_request_asks",),
        (
            "bindings/test_mcp_stateless.py::test_a_question_is_a_form_and_its_answer_goes_on_with_the_call",
            "bindings/test_mcp_stateless.py::test_a_task_asks_and_is_answered",
        ),
        (
            "bindings/test_mcp_stateless.py::test_a_task_is_canceled_and_what_has_ended_stays",
            "bindings/test_mcp_stateless.py::test_a_caller_who_leaves_cancels_the_call",
        ),
        ("bindings/test_mcp_stateless.py::test_files_come_as_in_every_version",),
        (
            "bindings/test_mcp_stateless.py::test_a_task_goes_on_at_another_server_of_the_store",
            "bindings/test_mcp_stateless.py::test_a_state_outlives_the_server",
        ),
        (
            "bindings/test_mcp_stateless.py::test_a_task_is_its_owners_alone",
            "bindings/test_mcp_stateless.py::test_a_state_is_of_one_caller_and_one_tool_and_not_forged",
        ),
        ("bindings/test_mcp.py::test_what_is_over_a_limit_is_told_to_the_model",),
    ),
    "Mounted application": (
        (MOUNTED, "server/test_mounted.py::test_cards_name_urls_at_which_messages_are_answered"),
        (MOUNTED, "server/test_mounted.py::test_a_task_goes_on_when_its_reader_leaves"),
        (MOUNTED, "peers/sdk1.py::input_required"),
        (MOUNTED, "peers/sdk1.py::cancel"),
        (MOUNTED, "peers/sdk1.py::file_round_trip"),
        (MOUNTED, "peers/sdk1.py::resubscribe", "server/test_mounted.py::test_cut_streams_leave_nothing_behind"),
        ("test_application.py::test_a_callers_tasks_are_those_of_the_principal_that_authenticate_returns",),
        ("server/test_mounted.py::test_a_large_body_is_refused_whether_its_length_is_known_or_not",),
    ),
    "Workers": (
        ("bindings/test_workers.py::test_a_task_from_lease_to_completion",),
        ("systems/test_shared_workers.py::test_a_task_is_done_through_all_replicas",),
        ("bindings/test_workers.py::test_a_worker_asks_and_hears_the_answer",),
        ("bindings/test_workers.py::test_a_cancel_reaches_the_worker",),
        ("agents/worker/test_worker.py::test_a_worker_cannot_name_a_file_of_the_store",),
        (
            "systems/test_shared_workers.py::test_a_worker_goes_on_when_its_replica_stops",
            "drills/test_workers.py::test_a_worker_loses_and_repeats_no_word_when_replicas_are_killed",
        ),
        (
            "bindings/test_workers.py::test_a_lease_counts_for_its_agent_alone",
            "systems/test_apart.py::test_a_worker_of_another_agent_is_told_nothing_of_this_ones_tasks",
        ),
        ("bindings/test_workers.py::test_a_report_of_too_many_values_is_refused_and_the_limit_named",),
    ),
}
"""The tests of each row of a door, in the order of `ASPECTS`."""

UNPROVED = {("Chat completions", "Cancel"): "not in the protocol"}
"""The rows without a test, with words of the row that say why."""


@cache
def names_in(file: str) -> frozenset[str]:
    """The functions of a module of tests."""
    parsed = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(each.name for each in parsed.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_page_and_the_table_have_each_door_and_the_table_each_aspect() -> None:
    named = re.findall(r"^\| ([^|]+?) \|", PAGE, re.MULTILINE)
    assert [name for name in named if name not in ("Door", "---")] == list(PROOFS)
    sections = load_table("doors").sections
    assert tuple(section.title for section in sections) == ASPECTS
    assert all([door for door, _ in section.rows] == list(PROOFS) for section in sections)


@pytest.mark.parametrize("door", PROOFS)
def test_each_row_is_proved_by_tests_that_there_are(door: str) -> None:
    assert len(PROOFS[door]) == len(ASPECTS)
    for section, proofs in zip(load_table("doors").sections, PROOFS[door], strict=True):
        aspect, text = section.title, dict(section.rows)[door]
        assert bool(proofs) != ((door, aspect) in UNPROVED)
        assert UNPROVED.get((door, aspect), "").casefold() in text.casefold()
        for proof in proofs:
            file, _, name = proof.partition("::")
            assert name in names_in(file), f"{door}, {aspect}: there is no {proof}"
            assert name.startswith("test_") or file.startswith("peers/")
