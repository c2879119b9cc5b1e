// Package modelserver imitates the API of Anthropic's models for tests, enough for the real Claude
// Code to complete scripted runs without a key and without a network.
//
// A prompt selects its script with a mark, {{name}}. The server keeps no state of a conversation:
// it counts in each request how many of the model's answers follow the newest mark, and returns the
// next step. Therefore it serves any number of sessions, resumed or not, and gives a repeated
// request the same answer. After its last step, a script answers that there is nothing left to do.
//
//	{{name}} ─▶ step 0 ─▶ calls tools ─▶ step 1 ─▶ … ─▶ last step, which calls none
//
// Requests returns the requests that the server received, which show what an agent remembers.
package modelserver
