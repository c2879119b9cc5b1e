package question

import "github.com/overwinter-dev/overwinter/internal/failure"

// Closed refuses an answer to a question of this status, which is not open any more.
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
