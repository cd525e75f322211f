package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"weir"
	"weir/internal/engine"
)

// copiesInFlight is the number of batches that Copy proposes before the first of them is durable.
// These batches share syncs of the disk. More would delay the publishes of others.
const copiesInFlight = 256

// Copy stores copies of batches, in increasing order of sequence and under the same sequences, in a
// stream to which nothing else is published. It returns when all are durable. If it fails, some of
// them may have been stored. Copy takes ownership of the payloads.
//
// The sequences that are missing between the batches are missing in the original too. Copy closes
// these gaps at once, without the usual time for publishers to fill them (D4), so that all copies
// can be read when it returns.
func Copy(ctx context.Context, s *Stream, batches []weir.Batch) error {
	f, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer f.release()
	c := copies{flying: make(chan struct{}, copiesInFlight)}
	for i := range batches {
		c.flying <- struct{}{}
		if c.failed() != nil {
			<-c.flying
			break
		}
		s.mu.Lock()
		f.users++ // the batch uses the feed until its outcome is reported
		s.mu.Unlock()
		begin(f, &Publish{Chosen: true, Seq: batches[i].Seq, Batch: batches[i]}, &c, false)
	}
	for range copiesInFlight { // the channel has space for all these elements only when no batch is in flight
		c.flying <- struct{}{}
	}
	if err := c.failed(); err != nil {
		return err
	}
	return closeOpenGaps(ctx, f)
}

// closeOpenGaps closes the open gaps at once. It does not wait for publishers to fill them.
func closeOpenGaps(ctx context.Context, f *feed) error {
	f.mu.Lock()
	_, open := f.ahead.NextDue()
	f.mu.Unlock()
	if !open {
		return nil
	}
	e := &engine.Entry{Header: engine.Header{Kind: engine.GapClosed}, Proposer: &closing{gaps: true}}
	return changeError(f.s.ID, f.log.Append(ctx, e))
}

// copies receives the outcomes of the batches that Copy proposes.
type copies struct {
	flying chan struct{} // one element per batch in flight

	mu  sync.Mutex
	err error // the first failure
}

// Published implements Outcome.
func (c *copies) Published(_ weir.Ack, err error) {
	if p, ok := errors.AsType[*Panic](err); ok {
		err = fmt.Errorf("%w\n\n%s", p, p.Stack) // nothing else would tell where it happened
	}
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	<-c.flying
}

func (c *copies) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
