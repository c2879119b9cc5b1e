// Package profile says what agents are given in addition to their defaults: instructions, skills, subagents, commands,
// servers of the Model Context Protocol, files, a model, variables and permissions.
//
// A [Profile] has versions, which are immutable. A session names one of them, see [ParseRef]. The adapter of its agent
// turns the [Spec] into what the agent reads.
package profile
