// Package oldrollout reads the rollouts of older versions of Codex, which have no items. They
// record messages and calls in the form of the model API, in lines with a type and a payload, or,
// in the oldest versions, as whole lines. They are supported so that no part of an old session is
// lost; the agent itself still resumes them. Package codex turns the result into blocks.
package oldrollout
