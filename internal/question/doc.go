// Package question has the questions of agents to people, and the answers.
//
// An agent asks for the permission to call a tool, or asks a question in words. Its adapter
// converts that to an [Asked], which has the same form for every agent. A [Question] is shown to
// people: it is open until it is answered, expires or is cancelled, and never changes afterwards.
package question
