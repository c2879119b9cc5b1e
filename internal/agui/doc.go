// Package agui shows a session by the AG-UI protocol, version 1.0. It is pure.
//
//	conversation so far ──Snapshot──▶ MESSAGES_SNAPSHOT
//	events after it     ──Encoder───▶ what happens in the session, until a prompt is over or the agent waits for an answer
//
//	block or event              AG-UI
//	--------------------------  ----------------------------------------------------------------
//	user_message                TEXT_MESSAGE_START (role user), _CONTENT, _END
//	assistant_text              TEXT_MESSAGE_START, _CONTENT, _END
//	thinking                    REASONING_START, REASONING_MESSAGE_START, _CONTENT, _END, REASONING_END
//	tool_use                    TOOL_CALL_START, _ARGS, _END
//	tool_result                 TOOL_CALL_RESULT
//	subagent, its conversation  SUBAGENT_STARTED, the same events with its subagentRunId, SUBAGENT_FINISHED or _ERROR
//	open questions              RUN_FINISHED with interrupts: the run ends, the turn waits
//	prompt with an outcome      RUN_FINISHED (success, cancelled) or RUN_ERROR
//	other events                CUSTOM, with the name of the event's type
//
// # Invariants
//
//   - A stream is one AG-UI run. A prompt may take several: one until each question, one for each client that attaches.
//   - Everything that is opened is closed before the run ends.
//   - The protocol cannot remove or change closed items. If the conversation does, Stale reports
//     it, and the stream continues with another snapshot. As the protocol specifies, clients keep
//     their reasoning if the snapshot has none.
//   - An encoder keeps no text of messages, only a hash of each shown block, for at most maxShown
//     blocks.
package agui
