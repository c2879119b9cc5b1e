package sandbox

import (
	"context"
	"errors"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// Error is the type of all errors of this package.
type Error = driver.Error

// Code determines how to handle an Error.
type Code = driver.Code

// The codes of an Error; see package driver.
const (
	Gone        = driver.Gone
	NameTaken   = driver.NameTaken
	Conflict    = driver.Conflict
	NoFile      = driver.NoFile
	Invalid     = driver.Invalid
	Denied      = driver.Denied
	Throttled   = driver.Throttled
	Timeout     = driver.Timeout
	Unavailable = driver.Unavailable
	Damaged     = driver.Damaged
	Unsupported = driver.Unsupported
)

// ErrNameForeign means that the name of a generation belongs to another sandbox; its code is
// NameTaken. The caller increments the generation.
var ErrNameForeign = errors.New("the name belongs to a sandbox with other tags")

// CodeOf returns the code of err; "" for nil.
func CodeOf(err error) Code { return driver.CodeOf(err) }

// IsGone reports whether err means that a sandbox or image is permanently gone.
func IsGone(err error) bool { return err != nil && CodeOf(err) == Gone }

// fault converts err to an Error. If ctx has ended, its cause replaces the driver's error.
func fault(ctx context.Context, op, id string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		code := Unavailable
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			code = Timeout
		}
		return &Error{Code: code, Op: op, ID: id, Err: context.Cause(ctx)}
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Code: e.Code, Op: op, ID: id, Err: e.Err}
	}
	return &Error{Code: driver.CodeOf(err), Op: op, ID: id, Err: err}
}
