// Package streamjson reads the lines that Gemini CLI prints with --output-format stream-json. It runs one
// prompt: there is no bridge, and the lines have no ids of text and no thoughts. They are read so that what
// others have recorded can be. Package gemini makes blocks of them.
package streamjson
