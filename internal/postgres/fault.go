package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// violations maps the constraints that the arguments of a call can violate to the errors to return.
// Any other violation is a bug and becomes an internal error.
var violations = map[string]failure.Error{
	"sessions_pkey":            {Code: failure.IllegalState, Message: "the session exists already"},
	"sessions_idle_timeout":    {Code: failure.Invalid, Message: "the idle timeout must be positive"},
	"prompts_pkey":             {Code: failure.PromptExists, Message: "the session has a prompt with this id"},
	"prompts_mode":             {Code: failure.Invalid, Message: "the mode of the prompt is not known"},
	"prompts_on_unknown":       {Code: failure.Invalid, Message: "the onUnknown policy of the prompt is not known"},
	"runs_pkey":                {Code: failure.IllegalState, Message: "the run id belongs to another session"},
	"runs_one_open":            {Code: failure.IllegalState, Message: "the session has an unfinished run"},
	"runs_outcome":             {Code: failure.Invalid, Message: "the outcome is not known"},
	"profiles_name":            {Code: failure.NameTaken, Message: "another profile has this name"},
	"bundles_pkey":             {Code: failure.IllegalState, Message: "the bundle id belongs to another session"},
	"sandboxes_generation":     {Code: failure.Invalid, Message: "a generation is at least 1"},
	"sandboxes_status":         {Code: failure.Invalid, Message: "the status of the sandbox is not known"},
	"snapshots_session":        {Code: failure.NoSession, Message: "there is no such session"},
	"sandboxes_ended":          {Code: failure.Invalid, Message: "a sandbox is ended with a reason, not with a status"},
	"session_transitions_to":   {Code: failure.Invalid, Message: "the state that the transition leads to is not known"},
	"session_transitions_no":   {Code: failure.Invalid, Message: "transitions are numbered from 1"},
	"prompts_session":          {Code: failure.NoSession, Message: "there is no such session"},
	"idempotency_keys_pkey":    {Code: failure.Idempotency, Message: "the idempotency key was used for another request"},
	"idempotency_keys_session": {Code: failure.NoSession, Message: "there is no such session"},
}

// fault converts an error of the driver to a failure.Error. doing names the operation in a few
// words. A failure.Error and nil are returned unchanged.
func fault(doing string, err error) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*failure.Error](err); ok {
		return f
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		if f, ok := violations[pgErr.ConstraintName]; ok && pgErr.ConstraintName != "" {
			f.Err = cause{doing, err}
			return &f
		}
		switch {
		case pgErr.Code == "22021", pgErr.Code == "22P05", pgErr.Code == "22P02": // NUL or invalid UTF-8 in a text, invalid JSON
			return &failure.Error{Code: failure.Invalid, Message: "a text holds characters that cannot be stored", Err: cause{doing, err}}
		case strings.HasPrefix(pgErr.Code, "54"): // an index entry that is too long, JSON nested too deep
			return &failure.Error{Code: failure.Invalid, Message: "a value is beyond a limit of the database", Err: cause{doing, err}}
		case isTransient(pgErr.Code):
			return &failure.Error{Code: failure.Unavailable, Message: "the database is not available", Err: cause{doing, err}}
		}
		return &failure.Error{Code: failure.Internal, Message: "the database refused", Err: cause{doing, err}}
	}
	if isNoRows(err) {
		return &failure.Error{Code: failure.Internal, Message: "a row is missing", Err: cause{doing, err}}
	}
	// No response: the connection failed, or the caller's context ended.
	return &failure.Error{Code: failure.Unavailable, Message: "the database is not available", Err: cause{doing, err}}
}

// isTransient reports whether the same call may succeed later: connection exceptions, rollbacks
// caused by other transactions, insufficient resources, a server that is stopping or starting, a
// full or read-only disk.
func isTransient(code string) bool {
	for _, class := range []string{"08", "40", "53", "57", "58", "25P03", "25006", "55P03"} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

// isLockTimeout reports whether a statement exceeded the limit on waiting for a lock.
func isLockTimeout(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "55P03"
}

func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// cause is the part of a driver's error that may be logged. Only the end of a context can be
// unwrapped from it, since callers check for their own.
type cause struct {
	doing string
	err   error
}

func (c cause) Error() string { return fmt.Sprintf("%s: %v", c.doing, c.err) }

func (c cause) Is(target error) bool {
	return (target == context.Canceled || target == context.DeadlineExceeded) && errors.Is(c.err, target)
}

func noSession(id string) *failure.Error {
	return failure.Errorf(failure.NoSession, "there is no session %s", id)
}

func noPrompt(id string) *failure.Error {
	return failure.Errorf(failure.NoPrompt, "there is no prompt %s in this session", id)
}

func noProfile(id string) *failure.Error {
	return failure.Errorf(failure.NoProfile, "there is no profile %s", id)
}

func noQuestion(id string) *failure.Error {
	return failure.Errorf(failure.NoQuestion, "there is no question %s in this session", id)
}

func noRun(id string) *failure.Error {
	return failure.Errorf(failure.NoRun, "there is no run %s", id)
}

func illegal(format string, args ...any) *failure.Error {
	return failure.Errorf(failure.IllegalState, format, args...)
}
