// The number of a run, as it is typed.
import { readWholeNumber } from './work-run.js';

export const readRunNumber = (text: string): number => readWholeNumber(text, 'a run is');
