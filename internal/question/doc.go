// Package question has what agents ask people, and the answers.
//
// An agent asks for the permission to call a tool, or inquires in words. Its adapter makes an [Asked] of that, which is
// the same for every agent. A [Question] is one that is put to people: it is open until it is answered, expires or is
// cancelled, and never changes after that.
package question
