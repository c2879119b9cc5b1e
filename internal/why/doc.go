// Package why explains the state of a session, a prompt, a restore or a question: the chain of its
// causes, from the rows in Postgres and from the history of its workflow in Temporal.
//
//	Postgres ──▶ Facts ──┐
//	                     ├──▶ Explain ──▶ Explanation: a code and a sentence, the causes before it, what disagrees
//	Temporal ──▶ History ┘
//
// A cause has a stable code for programs and a sentence for people. The first describes the
// subject, and each one was caused by those after it. Rows are authoritative. Temporal adds the
// failed attempts with their errors. Without Temporal the explanation uses rows alone and reports
// that.
//
// No explanation has the text of a prompt, of a question or of an answer. It has reasons and
// errors, which the session's API shows too; they are truncated, and the API masks the values of
// secrets in them. All reads are bounded: see the constants of [Facts] and [History].
package why
