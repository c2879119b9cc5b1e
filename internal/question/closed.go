package question

import "github.com/overwinter-dev/overwinter/internal/failure"

// Closed returns the error for an answer to a question with this status, which is no longer open.
func (s Status) Closed() *failure.Error {
	code := failure.Answered
	switch s {
	case Expired:
		code = failure.Expired
	case Cancelled:
		code = failure.Cancelled
	case Open, Answered:
	}
	return failure.Errorf(code, "the question is %s already", s)
}
