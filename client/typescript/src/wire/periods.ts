/** Names of periods, in UTC, and the months in which they count. */

import type { Period } from "../sheet.js";

const DAY = 86_400_000;

/** The name of the period of a moment, in milliseconds since 1970. */
export function periodOf(moment: number, period: Period): string {
  if (period === "week") {
    const thursday = moment + (4 - weekday(moment)) * DAY;
    const year = periodOf(thursday, "month").slice(0, 4);
    const week = Math.floor((thursday - Date.parse(year)) / DAY / 7) + 1;
    return `${year}-W${String(week).padStart(2, "0")}`;
  }
  return new Date(moment).toISOString().slice(0, { hour: 13, day: 10, month: 7 }[period]);
}

/** The month in which the period of a moment counts: that of its last day. */
export function monthOf(moment: number, period: Period): string {
  return periodOf(period === "week" ? moment + (7 - weekday(moment)) * DAY : moment, "month");
}

/** The day of the week, from 1 on Monday to 7. */
const weekday = (moment: number): number => new Date(moment).getUTCDay() || 7;
