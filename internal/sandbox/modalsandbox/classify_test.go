package modalsandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for want, errs := range map[driver.Code][]error{
		driver.NameTaken: {modal.AlreadyExistsError{}, status.Error(codes.AlreadyExists, "")},
		driver.Gone:      {modal.NotFoundError{}, modal.SnapshotCreationError{}, status.Error(codes.NotFound, "")},
		driver.Conflict:  {modal.ConflictError{}, status.Error(codes.FailedPrecondition, ""), status.Error(codes.Aborted, "")},
		driver.NoFile:    {modal.SandboxFilesystemNotFoundError{}},
		driver.Invalid: {
			modal.InvalidError{},
			modal.RemoteError{},
			modal.SandboxFilesystemPermissionError{},
			modal.SandboxFilesystemIsADirectoryError{},
			modal.SandboxFilesystemNotADirectoryError{},
			status.Error(codes.InvalidArgument, ""), status.Error(codes.OutOfRange, ""),
		},
		driver.Denied:    {status.Error(codes.Unauthenticated, ""), status.Error(codes.PermissionDenied, "")},
		driver.Throttled: {modal.ResourceExhaustedError{}, status.Error(codes.ResourceExhausted, "")},
		driver.Timeout: {
			modal.TimeoutError{}, modal.SandboxTimeoutError{}, modal.ExecTimeoutError{}, context.DeadlineExceeded, status.Error(codes.DeadlineExceeded, ""),
		},
		driver.Unavailable: {
			errors.New("anything"),
			modal.ClientClosedError{},
			modal.InternalFailure{},
			status.Error(codes.Unavailable, ""),
			status.Error(codes.Internal, ""), status.Error(codes.Canceled, ""), status.Error(codes.Unknown, ""),
		},
		driver.Damaged:     {status.Error(codes.DataLoss, "")},
		driver.Unsupported: {status.Error(codes.Unimplemented, "")},
	} {
		for _, err := range errs {
			require.Equal(t, want, classify(err), "%T %v", err, err)
			require.Equal(t, want, classify(fmt.Errorf("wrapped: %w", err)), "wrapped %T %v", err, err)
		}
	}
}

func TestNotFoundInsideSandboxIsNotDeath(t *testing.T) {
	t.Parallel()
	require.Equal(t, driver.Unavailable, driver.CodeOf(insideFault("exec", "sb-1", modal.NotFoundError{})))
	require.Equal(t, driver.Unavailable, driver.CodeOf(insideFault("exec", "sb-1", status.Error(codes.NotFound, ""))))
	require.Equal(t, driver.Gone, driver.CodeOf(fault("poll", "sb-1", status.Error(codes.NotFound, ""))))
	require.ErrorIs(t, insideFault("read file", "sb-1", modal.SandboxFilesystemNotFoundError{}), fs.ErrNotExist)
	require.NoError(t, insideFault("exec", "sb-1", nil))
	require.NoError(t, fault("exec", "sb-1", nil))
}
