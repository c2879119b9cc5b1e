// Package parrot is the worked example of docs/adding-an-agent.md: a complete adapter for an
// imaginary agent that repeats its prompts. Its files are named as in every adapter. It passes the
// conformance suite, with a program that its tests contain. It is not in the catalog.
//
// The agent reads prompts as lines of JSON. It prints a record for the prompt, one for each piece
// of its answer, and one for the end of the turn, which contains the whole answer. The first and
// the last are also written to its transcript.
//
//	record          block                      <id>
//	prompt          user_message               <run>/prompt
//	piece, answer   assistant_text             <run>/answer
//	done            ends the turn
//
// Text that was being written when the process was killed is only in the stream. If the text is
// longer than 32 KiB, the stream has only its beginning.
package parrot
