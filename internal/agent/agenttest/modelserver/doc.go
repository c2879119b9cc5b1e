// Package modelserver is a stand-in for the API of Anthropic's models, for tests: enough of it that
// the real Claude Code completes scripted runs without a key and without a network.
//
// A prompt picks its script with a mark, {{name}}. The server keeps no state of a conversation: it
// works out from each request how many answers of the model follow the newest mark, and gives the
// next step. So it serves any number of sessions, resumed or not, and a request repeated is
// answered again. Beyond its last step a script says that it is over.
//
//	{{name}} ─▶ step 0 ─▶ calls tools ─▶ step 1 ─▶ … ─▶ last step, which calls none
//
// Requests returns what the server received: it shows what an agent remembers.
package modelserver
