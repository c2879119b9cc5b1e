package driver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

func TestFinalErrorCodes(t *testing.T) {
	t.Parallel()
	for code, final := range map[driver.Code]bool{
		driver.Gone: true, driver.NameTaken: true, driver.NoFile: true, driver.Invalid: true, driver.Denied: true, driver.Damaged: true, driver.Unsupported: true,
		driver.Conflict: false, driver.Throttled: false, driver.Timeout: false, driver.Unavailable: false,
	} {
		require.Equal(t, final, code.Final(), code)
		require.Equal(t, final, (&driver.Error{Code: code}).Final(), code)
	}
}

func TestErrorKeepsItsCodeAndCauseWhenWrapped(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("wake: %w", driver.Errorf(driver.Throttled, "create", "ses_1-g2", "quota: %w", io.ErrShortWrite))
	require.EqualError(t, err, "wake: create ses_1-g2: throttled: quota: short write")
	require.Equal(t, driver.Throttled, driver.CodeOf(err))
	require.ErrorIs(t, err, io.ErrShortWrite)
	require.Equal(t, "list: denied", (&driver.Error{Code: driver.Denied, Op: "list"}).Error())
	require.Equal(t, driver.Timeout, driver.CodeOf(fmt.Errorf("x: %w", context.DeadlineExceeded)))
	require.Equal(t, driver.Unavailable, driver.CodeOf(errors.New("x")))
	require.Empty(t, driver.CodeOf(nil))
}
