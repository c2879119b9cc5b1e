// Package why explains what became of a session, a prompt, a restore or a question: the chain of its causes, from what
// Postgres stores and from the history of its workflow in Temporal.
//
//	Postgres ──▶ Facts ──┐
//	                     ├──▶ Explain ──▶ Explanation: a code and a sentence, the causes before it, what disagrees
//	Temporal ──▶ History ┘
//
// A cause has a stable code for programs and a sentence for people. The first is what was asked about, and each one was
// caused by those after it. Rows are the record. Temporal adds what rows do not have: which attempts failed, and of
// what. Without Temporal the explanation is made of rows alone and says so.
//
// No explanation has the text of a prompt, of a question or of an answer. It has reasons and errors, which the session's API
// shows too; they are cut to a bound, and the API masks the values of secrets in them. Everything that is read is
// bounded: see the constants of [Facts] and [History].
package why
