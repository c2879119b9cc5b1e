// Package streamjson reads the output of Gemini CLI with --output-format stream-json, which runs
// one prompt without a bridge. Its lines have no ids of text and no thoughts. They are supported
// for recordings of other clients. Package gemini turns them into blocks.
package streamjson
