package weir_test

import (
	"errors"
	"fmt"
	"testing"

	"weir"
)

func TestError(t *testing.T) {
	err := weir.Errorf(weir.SequenceTooFarAhead, "sequence %d is more than %d above the cursor", 2000, weir.MaxAhead)
	if err.Code != "sequence_too_far_ahead" || err.Message != "sequence 2000 is more than 1024 above the cursor" {
		t.Errorf("got %+v", err)
	}
	if want := "sequence_too_far_ahead: sequence 2000 is more than 1024 above the cursor"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	var found *weir.Error
	if wrapped := fmt.Errorf("publish: %w", err); !errors.As(wrapped, &found) || found != err {
		t.Errorf("errors.As found %v in %v", found, wrapped)
	}
	if errors.As(errors.New("else"), &found) {
		t.Error("errors.As took an unrelated error for a *weir.Error")
	}
}

func TestErrorWithoutArguments(t *testing.T) {
	if got := weir.Errorf(weir.InternalError, "100%% full").Message; got != "100% full" {
		t.Errorf("got %q", got)
	}
}
