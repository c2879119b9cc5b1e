package process

import (
	"bufio"
	"bytes"
	"errors"
)

// readLine returns the next line without its newline. It truncates a line longer than most and
// reports it as cut; a last line without a newline is reported as cut too. The line is valid until
// the next call.
func readLine(r *bufio.Reader, buf *[]byte, most int) (line []byte, cut bool, err error) {
	piece, err := r.ReadSlice('\n')
	if err == nil && len(piece) <= most+1 {
		return piece[:len(piece)-1], false, nil
	}
	line = (*buf)[:0]
	for {
		ended := bytes.HasSuffix(piece, []byte{'\n'})
		if ended {
			piece = piece[:len(piece)-1]
		}
		room := most - len(line)
		if len(piece) > room {
			piece, cut = piece[:room], true
		}
		line = append(line, piece...)
		switch {
		case ended:
			*buf = line
			return line, cut, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && len(line) > 0:
			*buf = line
			return line, true, nil // the error is returned again by the next call
		case err != nil:
			return nil, false, err
		}
		piece, err = r.ReadSlice('\n')
	}
}
