// Package parrot is the worked example of docs/adding-an-agent.md: a whole adapter, of an imaginary agent that
// repeats what it is asked. Its files have the names that those of every adapter have. It passes the
// conformance suite, with a program that its tests contain; it is not in the catalog.
//
// The agent reads prompts as lines of JSON. It prints a record for the prompt, one for each piece of its
// answer, and one for the end of the turn, which has the whole answer. The first and the last are also its
// transcript.
//
//	record          block                      <id>
//	prompt          user_message               <run>/prompt
//	piece, answer   assistant_text             <run>/answer
//	done            ends the turn
//
// Text that was being written when the process was killed is in the stream alone; of more than 32 KiB, its
// beginning.
package parrot
