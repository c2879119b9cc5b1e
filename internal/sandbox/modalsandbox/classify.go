package modalsandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	modal "github.com/modal-labs/modal-client/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// fault converts an error of the SDK.
func fault(op, id string, err error) error {
	if err == nil {
		return nil
	}
	return &driver.Error{Code: classify(err), Op: op, ID: id, Err: err}
}

// insideFault is fault for calls that are answered from inside a sandbox, for which the SDK reports
// an unreachable machine as not found.
func insideFault(op, id string, err error) error {
	if err == nil {
		return nil
	}
	code := classify(err)
	if code == driver.Gone {
		code = driver.Unavailable
	}
	if code == driver.NoFile {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return &driver.Error{Code: code, Op: op, ID: id, Err: err}
}

// classify is the only place that handles the errors of the SDK: typed ones for some calls, bare
// gRPC statuses for the others.
func classify(err error) driver.Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded), is[modal.TimeoutError](err), is[modal.SandboxTimeoutError](err), is[modal.ExecTimeoutError](err):
		return driver.Timeout
	case is[modal.AlreadyExistsError](err):
		return driver.NameTaken
	case is[modal.ConflictError](err):
		return driver.Conflict
	case is[modal.NotFoundError](err), is[modal.SnapshotCreationError](err):
		return driver.Gone
	case is[modal.ResourceExhaustedError](err):
		return driver.Throttled
	case is[modal.SandboxFilesystemNotFoundError](err):
		return driver.NoFile
	case is[modal.InvalidError](err), is[modal.RemoteError](err),
		is[modal.SandboxFilesystemNotADirectoryError](err), is[modal.SandboxFilesystemIsADirectoryError](err),
		is[modal.SandboxFilesystemPermissionError](err), is[modal.SandboxFilesystemPathAlreadyExistsError](err),
		is[modal.SandboxFilesystemDirectoryNotEmptyError](err), is[modal.SandboxFilesystemFileTooLargeError](err):
		return driver.Invalid
	}
	switch status.Code(err) {
	case codes.NotFound:
		return driver.Gone
	case codes.AlreadyExists:
		return driver.NameTaken
	case codes.FailedPrecondition, codes.Aborted:
		return driver.Conflict
	case codes.InvalidArgument, codes.OutOfRange:
		return driver.Invalid
	case codes.Unimplemented:
		return driver.Unsupported
	case codes.Unauthenticated, codes.PermissionDenied:
		return driver.Denied
	case codes.ResourceExhausted:
		return driver.Throttled
	case codes.DeadlineExceeded:
		return driver.Timeout
	case codes.DataLoss:
		return driver.Damaged
	case codes.OK, codes.Canceled, codes.Unknown, codes.Internal, codes.Unavailable:
	}
	return driver.Unavailable
}

// is reports whether err is one of the SDK's value-typed errors.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
