// Package cli is the terminal client: it shows a session to a person and sends what the person types,
// over the public API. The commands of cmd/overwinter read the flags and call it.
//
//	Attach   a terminal: shows the conversation, takes prompts, commands and answers to questions
//	Script   no terminal: each line of the input is a prompt, its answer goes to the output
//	Follow   shows the conversation and, if asked to, takes answers to questions
//	Await    waits for one prompt and prints its answer
//
// Attach and Follow are built on console. One goroutine, that of console.run, owns its state; two
// others read the event stream and make the API calls, one call at a time, so that the display is
// updated meanwhile. A third one reads the input: it ends with the input, or with the process,
// because a read of a terminal cannot be cancelled. Every other goroutine has ended when a function
// of this package returns.
package cli
