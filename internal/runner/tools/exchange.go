package tools

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"

	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// exchange sends a line to the runner and reads the answer. A call waits until its turn ends,
// because its worker may be replaced meanwhile.
func exchange(ctx context.Context, socket string, data []byte) (agenttool.Answer, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return agenttool.Answer{}, err
	}
	defer conn.Close() // the answer has already been read
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(append(data, '\n')); err != nil {
		return agenttool.Answer{}, err
	}
	line, err := bufio.NewReader(io.LimitReader(conn, runner.MaxCallAnswer+1)).ReadBytes('\n')
	if err != nil {
		return agenttool.Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	var answer agenttool.Answer
	err = json.Unmarshal(line, &answer)
	return answer, err
}
